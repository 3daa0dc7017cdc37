package archtest_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// glossaryRow finds the Go name in the second column of a table row.
var glossaryRow = regexp.MustCompile("(?m)^\\| [^|]+ \\| `([a-z0-9/]+)\\.([A-Z][A-Za-z0-9]*)` \\|")

func TestGlossaryNamesWhatExists(t *testing.T) {
	for _, bad := range missingNames(readFile(t, "docs/glossary.md"), root) {
		t.Error(bad)
	}
}

func TestGlossaryCheckFindsARenamedType(t *testing.T) {
	text := "| a | `internal/archtest.Row` | there |\n" +
		"| b | `internal/archtest.Rank` | not there |\n" +
		"| c | `nowhere.Thing` | no package |\n"
	got := missingNames(text, root)
	if len(got) != 2 || !strings.Contains(got[0], "archtest.Rank") || !strings.Contains(got[1], "nowhere.Thing") {
		t.Errorf("missing names = %q, want Rank and Thing", got)
	}
}

// missingNames returns a line for each name in the glossary's text that its package does not
// declare at top level.
func missingNames(text, root string) []string {
	declared := map[string]map[string]bool{}
	var bad []string
	for _, m := range glossaryRow.FindAllStringSubmatch(text, -1) {
		dir, name := m[1], m[2]
		if declared[dir] == nil {
			declared[dir] = topLevel(filepath.Join(root, dir))
		}
		if !declared[dir][name] {
			bad = append(bad, fmt.Sprintf("docs/glossary.md: %s.%s is not declared", dir, name))
		}
	}
	return bad
}

// topLevel returns the types that the production files of a folder declare. A folder or file that
// cannot be read declares nothing.
func topLevel(dir string) map[string]bool {
	names := map[string]bool{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return names
	}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".go") || strings.HasSuffix(e.Name(), "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(dir, e.Name()), nil, parser.SkipObjectResolution)
		if err != nil {
			continue
		}
		for _, decl := range file.Decls {
			gen, ok := decl.(*ast.GenDecl)
			if !ok || gen.Tok != token.TYPE {
				continue
			}
			for _, spec := range gen.Specs {
				if s, ok := spec.(*ast.TypeSpec); ok {
					names[s.Name.Name] = true
				}
			}
		}
	}
	return names
}
