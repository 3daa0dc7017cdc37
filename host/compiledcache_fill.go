package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/routerd/routerd/plugins/abi"
)

// compiledForm is what a compiler made, in a folder of its own until it is
// published.
type compiledForm struct {
	tmp    string // the folder
	name   string // as the engine names the file
	module string // digest of the original
}

func (m compiledForm) path() string { return filepath.Join(m.tmp, engineFolder(), m.name) }

// discard removes the folder.
func (m compiledForm) discard() { _ = os.RemoveAll(m.tmp) }

// compile compiles with comp into a folder of its own. It needs no turn. The
// caller discards what it returns.
func (c *compiledCache) compile(ctx context.Context, comp Compiler, original, rewritten []byte) (m compiledForm, err error) {
	m = compiledForm{module: Digest(original)}
	if m.tmp, err = os.MkdirTemp(c.dir, "compiling-"); err != nil {
		return m, unusable("make a folder to compile in", err)
	}
	defer func() {
		if err != nil {
			m.discard()
		}
	}()
	if err := comp.Compile(ctx, original, rewritten, m.tmp); err != nil {
		return m, err
	}
	made, err := os.ReadDir(filepath.Join(m.tmp, engineFolder()))
	if err != nil || len(made) != 1 {
		return m, refuse(StepCompile, abi.ECompile, fmt.Sprintf("the compiler left %d files", len(made)), "one compiled module")
	}
	m.name = made[0].Name()
	return m, nil
}

// publish moves a compiled form in, marks it and drops what is too much.
func (c *compiledCache) publish(key string, m compiledForm) error {
	entry, there := c.sameForm(m.name)
	if !there {
		var err error
		if entry, err = c.moveIn(m); err != nil {
			return err
		}
	}
	entry.Key, entry.Module = key, m.module
	mark, err := json.Marshal(entry)
	if err != nil {
		return fmt.Errorf("mark compiled module: %w", err)
	}
	if err := os.WriteFile(filepath.Join(m.tmp, "marker"), mark, 0o600); err != nil {
		return unusable("mark compiled module", err)
	}
	clearFolder(c.marker(key))
	if err := os.Rename(filepath.Join(m.tmp, "marker"), c.marker(key)); err != nil {
		return unusable("mark compiled module", err)
	}
	c.trim(key)
	return nil
}

// sameForm finds a form that is there and whole, because a module that differs
// only in what is not executed was compiled before. It stays: its own marker
// has its checksum.
func (c *compiledCache) sameForm(name string) (compiledEntry, bool) {
	for _, e := range c.entries() {
		if e.File != name {
			continue
		}
		if sum, err := sumOf(c.form(name)); err == nil && sum == e.Sum {
			return e, true
		}
	}
	return compiledEntry{}, false
}

// moveIn moves a form to its place and says what it looks like.
func (c *compiledCache) moveIn(m compiledForm) (compiledEntry, error) {
	sum, err := sumOf(m.path())
	if err != nil {
		return compiledEntry{}, unusable("read compiled module", err)
	}
	st, err := os.Lstat(m.path())
	if err != nil {
		return compiledEntry{}, unusable("read compiled module", err)
	}
	if err := os.MkdirAll(filepath.Join(c.dir, engineFolder()), 0o700); err != nil {
		return compiledEntry{}, unusable("make compiled cache", err)
	}
	clearFolder(c.form(m.name))
	if err := os.Rename(m.path(), c.form(m.name)); err != nil {
		return compiledEntry{}, unusable("keep compiled module", err)
	}
	return compiledEntry{File: m.name, Sum: sum, Size: st.Size()}, nil
}

// clearFolder removes a folder that stands where a file belongs.
func clearFolder(name string) {
	if st, err := os.Lstat(name); err == nil && st.IsDir() {
		_ = os.RemoveAll(name)
	}
}

// unusable says what could not be done in the folder of compiled modules.
func unusable(what string, err error) error {
	var path *os.PathError
	if errors.As(err, &path) {
		err = path.Err
	}
	return fmt.Errorf("%s: %w: %w", what, ErrCompiledCache, err)
}
