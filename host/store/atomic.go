package store

import (
	"fmt"
	"os"
	"path/filepath"
)

// WriteFile replaces a file as a whole: a temporary file beside it, fsync,
// rename, fsync of the folder. After a crash the file holds the old bytes or
// the new ones. The temporary file's name starts with a dot.
func WriteFile(path string, b []byte) (err error) {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, ".writing-*")
	if err != nil {
		return fmt.Errorf("write %s: %w", filepath.Base(path), err)
	}
	defer func() {
		if err != nil {
			f.Close()
			os.Remove(f.Name())
			err = fmt.Errorf("write %s: %w", filepath.Base(path), err)
		}
	}()
	if _, err = f.Write(b); err != nil {
		return err
	}
	if err = f.Sync(); err != nil {
		return err
	}
	if err = f.Close(); err != nil {
		return err
	}
	if err = os.Rename(f.Name(), path); err != nil {
		return err
	}
	return syncFolder(dir)
}

// SweepTemporary removes the temporary files of WriteFile that a crash left.
func SweepTemporary(dir string) error {
	left, err := filepath.Glob(filepath.Join(dir, ".writing-*"))
	if err != nil {
		return fmt.Errorf("sweep %s: %w", dir, err)
	}
	for _, l := range left {
		if err := os.Remove(l); err != nil {
			return fmt.Errorf("sweep %s: %w", dir, err)
		}
	}
	return nil
}

func syncFolder(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
