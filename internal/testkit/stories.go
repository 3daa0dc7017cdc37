package testkit

import (
	"path/filepath"
	"testing"
	"testing/synctest"

	"github.com/cockroachdb/datadriven"
)

// Stories runs every testdata/*.txt of the package under test as a test of its own, in a
// bubble with a clock of its own (testing/synctest): start gives what answers a file's
// commands and, for its end, what stops it. With -rewrite the files get the answers.
func Stories(t *testing.T, start func(t *testing.T) (run func(*testing.T, *datadriven.TestData) string, stop func())) {
	t.Helper()
	paths, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no stories: %v", err)
	}
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				run, stop := start(t)
				defer stop()
				datadriven.RunTest(t, path, run)
			})
		})
	}
}
