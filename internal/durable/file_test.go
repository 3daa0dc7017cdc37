package durable_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/internal/durable"
)

func TestAFileIsReplacedWholeWithItsMode(t *testing.T) {
	name := filepath.Join(t.TempDir(), "f")
	for _, text := range []string{"first", "second"} {
		if err := durable.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(name)
		if err != nil || string(got) != text {
			t.Errorf("got %q, %v", got, err)
		}
	}
	info, err := os.Stat(name)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	entries, err := os.ReadDir(filepath.Dir(name))
	if err != nil || len(entries) != 1 {
		t.Errorf("left %v, %v", entries, err)
	}
}

func TestAFailedWriteLeavesNothingBehind(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "folder")
	if err := os.MkdirAll(filepath.Join(name, "full"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := durable.WriteFile(name, []byte("x"), 0o600); err == nil {
		t.Error("a folder was replaced by a file")
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("left %v, %v", entries, err)
	}
}

func TestAFileWhoseWritingFailsStaysAsItWas(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "f")
	if err := durable.WriteFile(name, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("broken")
	err := durable.Write(name, 0o600, func(w io.Writer) error {
		_, err := io.WriteString(w, "half")
		return errors.Join(err, broken)
	})
	if !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("left %v, %v", entries, err)
	}
	if got, err := os.ReadFile(name); err != nil || string(got) != "old" {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestCleanTempRemovesOnlyHalfWrittenFiles(t *testing.T) {
	dir := t.TempDir()
	for _, n := range []string{".writing-123", "kept"} {
		if err := os.WriteFile(filepath.Join(dir, n), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := durable.CleanTemp(dir); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 || entries[0].Name() != "kept" {
		t.Errorf("left %v, %v", entries, err)
	}
}

func TestRemovingAMissingFileIsNoError(t *testing.T) {
	if err := durable.Remove(filepath.Join(t.TempDir(), "none")); err != nil {
		t.Error(err)
	}
}

func TestEachStepOfAWriteIsTold(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "f")
	var steps []string
	durable.OnStep(func(step string) { steps = append(steps, step) })
	defer durable.OnStep(nil)
	if err := durable.WriteFile(name, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := durable.Remove(name); err != nil {
		t.Fatal(err)
	}
	want := []string{"create", "write", "sync", "rename", "sync folder", "remove", "sync folder"}
	if d := cmp.Diff(want, steps); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestAnyStepLeavesTheOldFileOrTheNewOne(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "f")
	if err := durable.WriteFile(name, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	var seen []string
	durable.OnStep(func(string) {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Error(err)
		}
		seen = append(seen, string(b))
	})
	defer durable.OnStep(nil)
	if err := durable.WriteFile(name, []byte("new"), 0o600); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"old", "old", "old", "new", "new"}, seen); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
