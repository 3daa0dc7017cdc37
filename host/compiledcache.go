package host

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/cpu"

	"github.com/routerd/routerd/plugins/abi"
)

// maxCompiledBytes bounds the folder of compiled modules; those that were used
// longest ago are dropped, and made again when they are needed.
const maxCompiledBytes = 1 << 30

// markerPrefix starts the name of a marker; its key follows.
const markerPrefix = "ok-"

// compiledCache is the folder of compiled modules. A marker per key tells that
// the module was validated, which one it is and where its compiled form is, so
// that a load never compiles in this process by surprise. What is in there is
// executed: the folder is the owner's alone. Not safe for concurrent use: the
// runtime's turn guards it.
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
		return nil, fmt.Errorf("make compiled cache: %w", err)
	}
	if err := os.Chmod(abs, 0o700); err != nil {
		return nil, fmt.Errorf("restrict compiled cache: %w", err)
	}
	left, err := filepath.Glob(filepath.Join(abs, "compiling-*"))
	if err != nil {
		return nil, fmt.Errorf("list compiled cache: %w", err)
	}
	for _, l := range left {
		if err := os.RemoveAll(l); err != nil {
			return nil, fmt.Errorf("clean compiled cache: %w", err)
		}
	}
	return &compiledCache{dir: abs, most: maxCompiledBytes}, nil
}

// compiledEntry is a marker with what it tells.
type compiledEntry struct {
	key    string
	digest string // of the module, "sha256:HEX"
	file   string // in the engine's folder
	used   time.Time
	size   int64
}

// read reads the marker of key; false when it or the compiled form is not there.
func (c *compiledCache) read(key string) (compiledEntry, bool) {
	b, err := os.ReadFile(c.marker(key))
	if err != nil {
		return compiledEntry{}, false
	}
	file, digest, ok := strings.Cut(string(b), "\n")
	if !ok || file == "" || strings.ContainsAny(file, `/\`) {
		return compiledEntry{}, false
	}
	made, err := os.Stat(filepath.Join(c.dir, engineFolder(), file))
	if err != nil {
		return compiledEntry{}, false
	}
	mark, err := os.Stat(c.marker(key))
	if err != nil {
		return compiledEntry{}, false
	}
	return compiledEntry{key: key, digest: digest, file: file, used: mark.ModTime(), size: made.Size()}, true
}

// has tells whether the compiled form for key is there, and notes that it is
// used.
func (c *compiledCache) has(key string) bool {
	_, ok := c.read(key)
	if ok {
		now := time.Now()
		_ = os.Chtimes(c.marker(key), now, now) // only the order of dropping hangs on it
	}
	return ok
}

// drop forgets key and its compiled form.
func (c *compiledCache) drop(key string) {
	if e, ok := c.read(key); ok {
		_ = os.Remove(filepath.Join(c.dir, engineFolder(), e.file))
	}
	_ = os.Remove(c.marker(key))
}

// fill compiles with comp into a folder of its own and moves the result in.
func (c *compiledCache) fill(ctx context.Context, comp Compiler, key string, original, rewritten []byte) error {
	tmp, err := os.MkdirTemp(c.dir, "compiling-")
	if err != nil {
		return fmt.Errorf("make compile folder: %w", err)
	}
	defer os.RemoveAll(tmp)
	if err := comp.Compile(ctx, original, rewritten, tmp); err != nil {
		return err
	}
	made, err := os.ReadDir(filepath.Join(tmp, engineFolder()))
	if err != nil || len(made) != 1 {
		return refuse(StepCompile, abi.ECompile, fmt.Sprintf("the compiler left %d files", len(made)), "one compiled module")
	}
	name := made[0].Name()
	if err := os.Rename(filepath.Join(tmp, engineFolder(), name), filepath.Join(c.dir, engineFolder(), name)); err != nil {
		return fmt.Errorf("keep compiled module: %w", err)
	}
	mark := filepath.Join(tmp, "marker")
	if err := os.WriteFile(mark, []byte(name+"\n"+Digest(original)), 0o600); err != nil {
		return fmt.Errorf("mark compiled module: %w", err)
	}
	if err := os.Rename(mark, c.marker(key)); err != nil {
		return fmt.Errorf("mark compiled module: %w", err)
	}
	c.trim(key)
	return nil
}

// trim drops what was used longest ago while the folder is too large; key stays.
func (c *compiledCache) trim(key string) {
	entries := c.entries()
	slices.SortFunc(entries, func(a, b compiledEntry) int { return b.used.Compare(a.used) })
	size := int64(0)
	kept := map[string]bool{}
	for _, e := range entries {
		if e.key != key && size+e.size > c.most {
			continue
		}
		size += e.size
		kept[e.key] = true
	}
	c.keep(entries, func(e compiledEntry) bool { return kept[e.key] })
}

// sweep drops the compiled forms of modules that are not wanted, of other
// versions of the engine, and what no marker names.
func (c *compiledCache) sweep(wanted func(digest string) bool) {
	c.keep(c.entries(), func(e compiledEntry) bool { return wanted(e.digest) })
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
			keys[e.key], files[e.file] = true, true
		}
	}
	for _, key := range c.keys() {
		if !keys[key] {
			_ = os.Remove(c.marker(key))
		}
	}
	made, err := os.ReadDir(filepath.Join(c.dir, engineFolder()))
	if err != nil {
		return
	}
	for _, f := range made {
		if !files[f.Name()] {
			_ = os.Remove(filepath.Join(c.dir, engineFolder(), f.Name()))
		}
	}
}

// entries lists what is there whole.
func (c *compiledCache) entries() []compiledEntry {
	var out []compiledEntry
	for _, key := range c.keys() {
		if e, ok := c.read(key); ok {
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

// sweepCompiled drops the compiled forms of modules that are not wanted.
func (r *Runtime) sweepCompiled(wanted func(digest string) bool) {
	if r.disk == nil {
		return
	}
	r.turn <- struct{}{}
	defer func() { <-r.turn }()
	r.disk.sweep(wanted)
}

// cacheKey names a compiled module: both forms of its bytes, the engine's
// version and what the processor can do.
func cacheKey(original, rewritten []byte) string {
	h := sha256.New()
	for _, b := range [][]byte{original, rewritten} {
		sum := sha256.Sum256(b)
		h.Write(sum[:])
	}
	fmt.Fprintf(h, "%s %s %s %+v %+v", engineVersion(), runtime.GOOS, runtime.GOARCH, cpu.X86, cpu.ARM64)
	return hex.EncodeToString(h.Sum(nil))
}
