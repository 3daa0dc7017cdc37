// Package durable writes files that survive a crash at any point: after it, a
// file holds either its old or its new content, whole. It holds no state.
//
//	err := durable.WriteFile("workers.json", data, 0o600)
package durable

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// tempPrefix starts the names of files that are being written; a crash leaves
// them behind and CleanTemp removes them.
const tempPrefix = ".writing-"

// WriteFile replaces the file called name: a temporary file in the same folder
// is written, synced and renamed over it, then the folder is synced.
func WriteFile(name string, data []byte, mode os.FileMode) error {
	return Write(name, mode, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
}

// Write is WriteFile for what write writes. When that fails, the file stays as it was.
func Write(name string, mode os.FileMode, write func(io.Writer) error) (err error) {
	dir := filepath.Dir(name)
	f, err := os.CreateTemp(dir, tempPrefix)
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	step("create")
	defer func() {
		if err != nil {
			err = errors.Join(err, ignoreMissing(os.Remove(f.Name())))
		}
	}()
	if err := writeAll(f, mode, write); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	if err := os.Rename(f.Name(), name); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	step("rename")
	return SyncDir(dir)
}

// Remove removes the file called name and syncs its folder; a missing file is
// no error.
func Remove(name string) error {
	if err := ignoreMissing(os.Remove(name)); err != nil {
		return fmt.Errorf("remove %s: %w", name, err)
	}
	step("remove")
	return SyncDir(filepath.Dir(name))
}

// SyncDir makes changes of the folder's entries durable.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("sync %s: %w", dir, err)
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fmt.Errorf("sync %s: %w", dir, err)
	}
	step("sync folder")
	return nil
}

// CleanTemp removes what a crash left half written in the folder. Nobody may
// write into it meanwhile.
func CleanTemp(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("clean %s: %w", dir, err)
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), tempPrefix) {
			continue
		}
		if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
			return fmt.Errorf("clean %s: %w", dir, err)
		}
	}
	return nil
}

func writeAll(f *os.File, mode os.FileMode, write func(io.Writer) error) error {
	err := write(f)
	step("write")
	if err != nil {
		return errors.Join(err, f.Close())
	}
	err = errors.Join(f.Chmod(mode), f.Sync(), f.Close())
	step("sync")
	return err
}

func ignoreMissing(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}
