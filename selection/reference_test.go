package selection_test

import (
	"flag"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/selection"
)

var update = flag.Bool("update", false, "write generated files")

func TestTheReferenceIsFresh(t *testing.T) {
	const name = "../docs/reference/selection-api.md"
	if *update {
		if err := os.WriteFile(name, []byte(selection.Reference()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(selection.Reference(), string(got)); diff != "" {
		t.Errorf("run go generate ./selection (-want +got)\n%s", diff)
	}
}
