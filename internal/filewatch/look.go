package filewatch

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// MaxBytes is the size up to which a file is compared; a larger one counts as one
// that cannot be read.
const MaxBytes = 64 << 20

// Why a file is not compared though it can be opened.
var (
	errIrregular = errors.New("no regular file")
	errEmpty     = errors.New("empty, as a file is while it is written")
	errTooLarge  = fmt.Errorf("larger than %d MiB", MaxBytes>>20)
)

// sum identifies contents.
type sum [sha256.Size]byte

// Seen is what a look at some files saw; the zero value is of a look at none. It
// is never changed.
type Seen struct{ sums map[string]sum }

// Look reads files and notes their contents; those that cannot be read, or are
// empty, are left out. Paths are noted as they are given to New.
func Look(paths ...string) Seen {
	s := Seen{sums: map[string]sum{}}
	for _, p := range paths {
		if now, err := sumOf(p); err == nil {
			s.sums[p] = now
		}
	}
	return s
}

// sumOf reads one file. It waits for no writer of a pipe. Errors leave out the
// path.
func sumOf(path string) (s sum, err error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return s, bare(err)
	}
	defer func() { _ = f.Close() }() // read only
	info, err := f.Stat()
	if err != nil {
		return s, bare(err)
	}
	if !info.Mode().IsRegular() {
		return s, errIrregular
	}
	hash := sha256.New()
	n, err := io.Copy(hash, io.LimitReader(f, MaxBytes+1))
	switch {
	case err != nil:
		return s, bare(err)
	case n == 0:
		return s, errEmpty
	case n > MaxBytes:
		return s, errTooLarge
	}
	hash.Sum(s[:0])
	return s, nil
}

func bare(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}
