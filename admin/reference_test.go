package admin_test

import (
	"flag"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/admin"
)

var update = flag.Bool("update", false, "write generated files")

func TestTheReferenceIsFresh(t *testing.T) {
	const name = "../docs/reference/admin-api.md"
	if *update {
		if err := os.WriteFile(name, []byte(admin.Reference()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(admin.Reference(), string(got)); diff != "" {
		t.Errorf("run go generate ./admin (-want +got)\n%s", diff)
	}
}
