package cli_test

import (
	"flag"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/internal/cli"
)

var update = flag.Bool("update", false, "write generated files")

func TestTheReferenceIsFresh(t *testing.T) {
	const name = "../../docs/reference/cli.md"
	want := cli.Reference(root())
	if *update {
		if err := os.WriteFile(name, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("run go generate ./internal/cli (-want +got)\n%s", diff)
	}
}
