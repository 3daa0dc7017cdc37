package library

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/routerd/routerd/host/store"
)

// Limits of a module directory.
const (
	maxEntries = 65_536    // names of any kind
	maxModules = 256       // files NAME.wasm
	maxTotal   = 256 << 20 // bytes of all modules
	listChunk  = 1_024
)

// moduleSuffix ends the name of a file that is a module.
const moduleSuffix = ".wasm"

// errMoving is a file that changed while it was read.
var errMoving = errors.New("changed while it was read")

// file is a module as one look saw it.
type file struct {
	name   string // of the module
	digest string // "sha256:HEX"
	size   int64
}

// look is what one look at the directory saw, in order of names.
type look []file

// key tells two looks apart.
func (l look) key() string {
	var b strings.Builder
	for _, f := range l {
		fmt.Fprintf(&b, "%s=%s\n", f.name, f.digest)
	}
	return b.String()
}

// lookAt reads every module of a directory. Links are followed, hidden files
// and those that do not end in .wasm are no modules. The first file that cannot
// be one is the error.
func lookAt(ctx context.Context, dir string) (look, error) {
	names, err := moduleFiles(dir)
	if err != nil {
		return nil, err
	}
	var out look
	total := int64(0)
	for _, n := range names {
		if err := ctx.Err(); err != nil {
			return nil, context.Cause(ctx)
		}
		f, err := readFile(dir, n, nil)
		if err != nil {
			return nil, fmt.Errorf("file %q: %w", n, err)
		}
		if total += f.size; total > maxTotal {
			return nil, fmt.Errorf("file %q: more than %d MiB of modules in the directory", n, maxTotal>>20)
		}
		out = append(out, f)
	}
	return out, nil
}

// moduleFiles lists the files that are to be modules.
func moduleFiles(dir string) ([]string, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, bare(err)
	}
	defer func() { _ = d.Close() }() // read only
	var names []string
	for seen := 0; ; {
		entries, err := d.ReadDir(listChunk)
		if errors.Is(err, io.EOF) {
			slices.Sort(names)
			return names, nil
		}
		if err != nil {
			return nil, bare(err)
		}
		if seen += len(entries); seen > maxEntries {
			return nil, fmt.Errorf("more than %d files in the directory", maxEntries)
		}
		for _, e := range entries {
			name, is := strings.CutSuffix(e.Name(), moduleSuffix)
			if !is || strings.HasPrefix(name, ".") {
				continue
			}
			if err := store.CheckName(name); err != nil {
				return nil, fmt.Errorf("file %q: %w", e.Name(), err)
			}
			if names = append(names, e.Name()); len(names) > maxModules {
				return nil, fmt.Errorf("more than %d modules in the directory", maxModules)
			}
		}
	}
}

// readFile reads one module's file, into w too when that is not nil. It waits
// for no writer: what is not a regular file is an error.
func readFile(dir, name string, w io.Writer) (file, error) {
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return file{}, bare(err)
	}
	defer func() { _ = f.Close() }() // read only
	before, err := f.Stat()
	switch {
	case err != nil:
		return file{}, bare(err)
	case !before.Mode().IsRegular():
		return file{}, errors.New("no regular file")
	case before.Size() > store.MaxBytes:
		return file{}, store.ErrTooLarge
	}
	sum := sha256.New()
	to := io.Writer(sum)
	if w != nil {
		to = io.MultiWriter(sum, w)
	}
	n, err := io.Copy(to, io.LimitReader(f, store.MaxBytes+1))
	if err != nil {
		return file{}, bare(err)
	}
	after, err := f.Stat()
	if err != nil {
		return file{}, bare(err)
	}
	if n != before.Size() || stampOf(before) != stampOf(after) {
		return file{}, errMoving
	}
	return file{name: strings.TrimSuffix(name, moduleSuffix), digest: "sha256:" + hex.EncodeToString(sum.Sum(nil)), size: n}, nil
}

// stamp is what changes when a file is written.
type stamp struct {
	size int64
	at   time.Time
}

func stampOf(st fs.FileInfo) stamp { return stamp{st.Size(), st.ModTime()} }

// bare takes the path out of an error: the caller names the file.
func bare(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}
