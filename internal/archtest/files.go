package archtest

import (
	"bytes"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// Files returns one line per Go file below root that is longer than its limit, sorted by path.
// Generated files are left out: nobody reads them in full. So are testdata, hidden folders and
// what a build leaves behind.
func Files(root fs.FS) ([]string, error) {
	var bad []string
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if skipped(name) {
				return fs.SkipDir
			}
			return nil
		}
		if path.Ext(name) != ".go" {
			return nil
		}
		data, err := fs.ReadFile(root, name)
		if err != nil {
			return fmt.Errorf("read %s: %w", name, err)
		}
		limit := maxLines
		if strings.HasSuffix(name, "_test.go") {
			limit = maxTestLines
		}
		if lines := bytes.Count(data, []byte("\n")); lines > limit && !generated(data) {
			bad = append(bad, fmt.Sprintf("%s: %d lines, at most %d", name, lines, limit))
		}
		return nil
	})
	slices.Sort(bad)
	return bad, err
}

func skipped(dir string) bool {
	base := path.Base(dir)
	return dir != "." && strings.HasPrefix(base, ".") ||
		base == "testdata" || base == "node_modules" || dir == "bin" || dir == "dist"
}

// generated looks for the go command's marker line before the package clause.
func generated(data []byte) bool {
	for line := range bytes.Lines(data) {
		text := string(bytes.TrimSpace(line))
		if strings.HasPrefix(text, "// Code generated ") && strings.HasSuffix(text, " DO NOT EDIT.") {
			return true
		}
		if strings.HasPrefix(text, "package ") {
			return false
		}
	}
	return false
}
