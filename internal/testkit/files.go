package testkit

import (
	"io/fs"
	"path/filepath"
	"testing"
)

// Files lists all files below a folder by their paths from there, in order. A
// test that cannot read the folder ends.
func Files(t testing.TB, dir string) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		out = append(out, name)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}
