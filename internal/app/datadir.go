package app

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/routerd/routerd/internal/durable"
)

// dataDir is the folder that one process owns at a time.
type dataDir struct {
	path string
	lock *os.File
}

// openDataDir makes the folder where it is missing and takes its lock. A second
// process gets an error that says so.
func openDataDir(path string) (*dataDir, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("make data_dir: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(path, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock data_dir: %w", err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		err = fmt.Errorf("lock data_dir %s: %w", path, err)
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = fmt.Errorf("data_dir %s is in use by another routerd; give each its own", path)
		}
		return nil, errors.Join(err, lock.Close())
	}
	if err := durable.CleanTemp(path); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return &dataDir{path: path, lock: lock}, nil
}

// file is the path of a file in the folder.
func (d *dataDir) file(name string) string { return filepath.Join(d.path, name) }

// Close gives the lock back.
func (d *dataDir) Close() error { return d.lock.Close() }
