package host

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/cpu"
)

// maxCompiledBytes bounds the folder of compiled modules; those that were used
// longest ago are dropped, and made again when they are needed.
const maxCompiledBytes = 1 << 30

// markerPrefix starts the name of a marker; its key follows.
const markerPrefix = "ok-"

// maxMarker bounds a marker, in bytes.
const maxMarker = 4 << 10

// ErrCompiledCache is that the folder of compiled modules cannot be used: it is
// gone, read-only or full. What it holds still loads where that is possible.
var ErrCompiledCache = errors.New("the folder of compiled modules cannot be used")

// compiledCache is the folder of compiled modules. A marker per key tells that
// the module was validated, which one it is, where its compiled form is and the
// form's checksum, so that a load never compiles in this process by surprise.
// What is in there is executed: the folder is the owner's alone, and nothing is
// handed to the engine before its checksum was found right. Not safe for
// concurrent use, but for compile: the runtime's turn guards it.
type compiledCache struct {
	dir  string // absolute
	most int64  // bytes
}

// openCompiledCache makes the folder with mode 0700 and removes what a crash
// left half-made.
func openCompiledCache(dir string) (*compiledCache, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("resolve compiled cache: %w", err)
	}
	if err := os.MkdirAll(filepath.Join(abs, engineFolder()), 0o700); err != nil {
		return nil, unusable("make compiled cache", err)
	}
	if st, err := os.Stat(abs); err != nil || st.Mode().Perm() != 0o700 {
		if err := os.Chmod(abs, 0o700); err != nil {
			return nil, fmt.Errorf("restrict compiled cache: %w", err)
		}
	}
	left, err := filepath.Glob(filepath.Join(abs, "compiling-*"))
	if err != nil {
		return nil, fmt.Errorf("list compiled cache: %w", err)
	}
	for _, l := range left {
		_ = os.RemoveAll(l) // nothing reads it; a folder that is read-only serves what it has
	}
	return &compiledCache{dir: abs, most: maxCompiledBytes}, nil
}

// compiledEntry is a marker: what a compiled form is of, where it is, and what
// it must look like.
type compiledEntry struct {
	Key    string `json:"key"`
	Module string `json:"module"` // digest, "sha256:HEX"
	File   string `json:"file"`   // in the engine's folder
	Sum    string `json:"sum"`    // digest of the file
	Size   int64  `json:"size"`   // bytes of the file

	used time.Time
}

// entryState is what the cache has for a key.
type entryState int

const (
	entryMissing entryState = iota
	entryDamaged            // there, but not what was put there
	entryWhole
)

// read reads the marker of key and looks whether the compiled form is there. It
// does not look into the form.
func (c *compiledCache) read(key string) (compiledEntry, entryState) {
	f, st, err := openPlain(c.marker(key))
	if errors.Is(err, fs.ErrNotExist) {
		return compiledEntry{}, entryMissing
	}
	if err != nil {
		return compiledEntry{}, entryDamaged
	}
	defer func() { _ = f.Close() }() // read only
	e := compiledEntry{used: st.ModTime()}
	if json.NewDecoder(io.LimitReader(f, maxMarker)).Decode(&e) != nil || e.Key != key || e.File == "" || strings.ContainsAny(e.File, `/\`) {
		return compiledEntry{}, entryDamaged
	}
	made, err := os.Lstat(c.form(e.File))
	if err != nil || !made.Mode().IsRegular() || made.Size() != e.Size {
		return e, entryDamaged
	}
	return e, entryWhole
}

// check tells whether the compiled form for key is there with the bytes that
// were put there, and notes that it is used. The engine executes what it loads,
// and would compile in this process what it does not find: it may be asked only
// for what is whole.
func (c *compiledCache) check(key string) entryState {
	e, state := c.read(key)
	if state != entryWhole {
		return state
	}
	if sum, err := sumOf(c.form(e.File)); err != nil || sum != e.Sum {
		return entryDamaged
	}
	now := time.Now()
	_ = os.Chtimes(c.marker(key), now, now) // only the order of dropping hangs on it
	return entryWhole
}

// drop forgets key, and its compiled form unless another key has the same:
// modules that differ in what is not executed share one.
func (c *compiledCache) drop(key string) {
	dropped, _ := c.read(key)
	_ = os.RemoveAll(c.marker(key))
	if dropped.File == "" || strings.ContainsAny(dropped.File, `/\`) {
		return
	}
	for _, e := range c.entries() {
		if e.File == dropped.File {
			return
		}
	}
	_ = os.RemoveAll(c.form(dropped.File))
}

// forget drops what was compiled from the module with a digest.
func (c *compiledCache) forget(module string) {
	for _, e := range c.entries() {
		if e.Module == module {
			c.drop(e.Key)
		}
	}
}

// openPlain opens a regular file, following no link and waiting for nothing.
func openPlain(name string) (*os.File, fs.FileInfo, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = fmt.Errorf("%s is no regular file", filepath.Base(name))
	}
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return f, st, nil
}

// sumOf is the digest of a regular file.
func sumOf(name string) (string, error) {
	f, _, err := openPlain(name)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }() // read only
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil)), nil
}

// trim drops what was used longest ago while the folder is too large; key stays.
func (c *compiledCache) trim(key string) {
	entries := c.entries()
	slices.SortFunc(entries, func(a, b compiledEntry) int { return b.used.Compare(a.used) })
	size := int64(0)
	kept := map[string]bool{}
	for _, e := range entries {
		if e.Key != key && size+e.Size > c.most {
			continue
		}
		size += e.Size
		kept[e.Key] = true
	}
	c.keep(entries, func(e compiledEntry) bool { return kept[e.Key] })
}

// sweep drops the compiled forms of modules that are not wanted, of other
// versions of the engine, and what no marker names.
func (c *compiledCache) sweep(wanted func(digest string) bool) {
	c.keep(c.entries(), func(e compiledEntry) bool { return wanted(e.Module) })
	others, err := filepath.Glob(filepath.Join(c.dir, "wazero-*"))
	if err != nil {
		return
	}
	for _, o := range others {
		if filepath.Base(o) != engineFolder() {
			_ = os.RemoveAll(o)
		}
	}
}

// keep removes all but the chosen entries and the files that they name. What
// cannot be removed is left to the next time.
func (c *compiledCache) keep(entries []compiledEntry, chosen func(compiledEntry) bool) {
	keys, files := map[string]bool{}, map[string]bool{}
	for _, e := range entries {
		if chosen(e) {
			keys[e.Key], files[e.File] = true, true
		}
	}
	for _, key := range c.keys() {
		if !keys[key] {
			_ = os.RemoveAll(c.marker(key))
		}
	}
	made, err := os.ReadDir(filepath.Join(c.dir, engineFolder()))
	if err != nil {
		return
	}
	for _, f := range made {
		if !files[f.Name()] {
			_ = os.RemoveAll(c.form(f.Name()))
		}
	}
}

// entries lists what is there whole.
func (c *compiledCache) entries() []compiledEntry {
	var out []compiledEntry
	for _, key := range c.keys() {
		if e, state := c.read(key); state == entryWhole {
			out = append(out, e)
		}
	}
	return out
}

func (c *compiledCache) keys() []string {
	files, err := os.ReadDir(c.dir)
	if err != nil {
		return nil
	}
	var out []string
	for _, f := range files {
		if key, ok := strings.CutPrefix(f.Name(), markerPrefix); ok {
			out = append(out, key)
		}
	}
	return out
}

func (c *compiledCache) marker(key string) string { return filepath.Join(c.dir, markerPrefix+key) }

func (c *compiledCache) form(file string) string { return filepath.Join(c.dir, engineFolder(), file) }

// sweepCompiled drops the compiled forms of modules that are not wanted.
func (r *Runtime) sweepCompiled(wanted func(digest string) bool) {
	if r.disk == nil {
		return
	}
	r.turn <- struct{}{}
	defer func() { <-r.turn }()
	r.disk.sweep(wanted)
}

// Forget drops the compiled form of the module with a digest ("sha256:HEX"), so
// that a module that was only tried leaves nothing. What runs goes on.
func (r *Runtime) Forget(digest string) {
	if r.disk == nil {
		return
	}
	r.turn <- struct{}{}
	defer func() { <-r.turn }()
	r.disk.forget(digest)
}

// cacheKey names a compiled module: both forms of its bytes, the engine's
// version and what the processor can do.
func cacheKey(original, rewritten []byte) string {
	h := sha256.New()
	for _, b := range [][]byte{original, rewritten} {
		h.Write(sumInPieces(b))
	}
	fmt.Fprintf(h, "%s %s %s %+v %+v", engineVersion(), runtime.GOOS, runtime.GOARCH, cpu.X86, cpu.ARM64)
	return hex.EncodeToString(h.Sum(nil))
}

// sumInPieces is the SHA-256 of b. A sum of 32 MiB in one go takes 15 ms in which
// no collection can begin.
func sumInPieces(b []byte) []byte {
	h := sha256.New()
	for piece := range slices.Chunk(b, 256<<10) {
		h.Write(piece)
	}
	return h.Sum(nil)
}
