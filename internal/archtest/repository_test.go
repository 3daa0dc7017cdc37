package archtest_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/routerd/routerd/internal/archtest"
)

const root = "../.."

func TestEveryPackageKeepsToItsLayer(t *testing.T) {
	module, pkgs, err := archtest.List(t.Context(), root, "e2e")
	if err != nil {
		t.Fatal(err)
	}
	if len(pkgs) == 0 {
		t.Fatal("the go command listed no package")
	}
	for _, v := range archtest.Check(module, pkgs, archtest.Layers, archtest.Libraries) {
		t.Error(v)
	}
}

func TestNoFileIsLongerThanAReaderCanHold(t *testing.T) {
	bad, err := archtest.Files(os.DirFS(root))
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range bad {
		t.Error(v)
	}
}

func TestTheListSeesThisPackageAndItsTests(t *testing.T) {
	module, pkgs, err := archtest.List(t.Context(), root)
	if err != nil {
		t.Fatal(err)
	}
	if module != "github.com/routerd/routerd" {
		t.Errorf("module = %q", module)
	}
	i := slices.IndexFunc(pkgs, func(p archtest.Package) bool { return p.Path == "internal/archtest" })
	if i < 0 {
		t.Fatal("internal/archtest is not listed")
	}
	if !slices.Contains(pkgs[i].Imports, "os/exec") {
		t.Errorf("production imports = %v, want os/exec among them", pkgs[i].Imports)
	}
	if !slices.Contains(pkgs[i].TestImports, "testing") {
		t.Errorf("test imports = %v, want testing among them", pkgs[i].TestImports)
	}
}

func TestEachComponentHasOneRowAndAllowsOnlyRows(t *testing.T) {
	known := map[string]bool{"*": true}
	for _, r := range archtest.Layers {
		if known[r.Component] {
			t.Errorf("%s has two rows", r.Component)
		}
		known[r.Component] = true
	}
	for _, r := range archtest.Layers {
		for _, to := range r.Repo {
			if !known[to] {
				t.Errorf("%s allows %s, which has no row", r.Component, to)
			}
		}
	}
}

// The table itself must be a layering: following allowed edges never leads back.
func TestTheTableHasNoCycle(t *testing.T) {
	edges := map[string][]string{}
	for _, r := range archtest.Layers {
		edges[r.Component] = r.Repo
	}
	var walk func(at string, path []string)
	walk = func(at string, path []string) {
		if slices.Contains(path, at) {
			t.Errorf("cycle: %s", strings.Join(append(path, at), " → "))
			return
		}
		for _, to := range edges[at] {
			walk(to, append(slices.Clone(path), at))
		}
	}
	for from := range edges {
		walk(from, nil)
	}
}
