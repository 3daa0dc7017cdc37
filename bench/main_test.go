package bench_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/routerd/routerd/host"
)

func TestMain(m *testing.M) {
	host.RunCompileChild() // of the router, which is a child itself
	if len(os.Args) > 2 && os.Args[1] == childMark {
		os.Exit(childMain(os.Args[2], os.Args[3:]))
	}
	goleak.VerifyTestMain(m)
}
