package archtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// List asks the go command for the packages of the module that root belongs to, once for the host
// and once for guests (wasip1), with the build tags given, and returns them sorted by path with
// the imports of both. Packages that do not build are listed with the imports that could be read.
func List(ctx context.Context, root string, tags ...string) (module string, pkgs []Package, err error) {
	merged := map[string]*Package{}
	for _, env := range [][]string{nil, {"GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0"}} {
		module, err = listFor(ctx, root, env, tags, merged)
		if err != nil {
			return "", nil, err
		}
	}
	for _, p := range merged {
		pkgs = append(pkgs, *p)
	}
	slices.SortFunc(pkgs, func(a, b Package) int { return strings.Compare(a.Path, b.Path) })
	return module, pkgs, nil
}

// listed is one value of go list -json.
type listed struct {
	ImportPath, Name                   string
	Imports, TestImports, XTestImports []string
	Module                             struct{ Path string }
}

func listFor(ctx context.Context, root string, env, tags []string, into map[string]*Package) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-e", "-tags", strings.Join(tags, ","),
		"-json=ImportPath,Name,Imports,TestImports,XTestImports,Module", "./...")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), env...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("list packages below %s: %w: %s", root, err, stderr.String())
	}

	var module string
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var l listed
		if err := dec.Decode(&l); errors.Is(err, io.EOF) {
			return module, nil
		} else if err != nil {
			return "", fmt.Errorf("read the go command's package list: %w", err)
		}
		module = l.Module.Path
		path := strings.TrimPrefix(strings.TrimPrefix(l.ImportPath, module), "/")
		if path == "" {
			path = "."
		}
		p := into[path]
		if p == nil {
			p = &Package{Path: path, Name: l.Name}
			into[path] = p
		}
		p.Imports = union(p.Imports, l.Imports)
		p.TestImports = union(p.TestImports, slices.Concat(l.TestImports, l.XTestImports))
	}
}

func union(a, b []string) []string {
	all := slices.Concat(a, b)
	slices.Sort(all)
	return slices.Compact(all)
}
