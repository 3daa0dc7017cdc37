// Package library is how modules get into the store: by API one by one, and
// from the module directory as a whole. Whatever the way, a module is taken
// through the load pipeline before a name points to it.
//
// Invariants: a module that cannot load, has other bytes than declared or was
// only tried leaves nothing behind; a name belongs to one source and only that
// one changes it; the names of the directory are those of one set of files, all
// or none, and stay those of the last good set while the files are bad. A file
// is believed when two looks at the whole directory, some time apart, saw the
// same.
//
// Goroutines: Dir.Run is one; it waits for the one that listens to hints of the
// operating system.
//
//	lib, err := library.New(modules, runtime, registerer)
//	dir := library.NewDir(library.DirConfig{Path: path}, lib, log)
//	err = dir.Load(ctx)       // at the start
//	go dir.Run(ctx)           // until the end
//	err = dir.Load(ctx)       // before something that needs the files as they are now
//	stored, err := lib.Put(ctx, "kv-aware", wasm, false)
package library

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/routerd/routerd/host"
	"github.com/routerd/routerd/host/store"
)

// Loader takes modules through the load pipeline. Safe for concurrent use.
type Loader interface {
	// Check loads a module and lets go of it; a *host.LoadError where the module
	// is at fault.
	Check(ctx context.Context, wasm []byte) (host.Checked, error)
	// Forget drops what Check left on disk for a digest.
	Forget(digest string)
}

var _ Loader = (*host.Runtime)(nil)

// Library is safe for concurrent use.
type Library struct {
	store   *store.Store
	loader  Loader
	metrics *metrics

	mu        sync.Mutex // guards below
	directory *Status    // nil without a module directory
}

// New makes a library over a store. reg may be nil: then nothing is exported.
func New(s *store.Store, loader Loader, reg prometheus.Registerer) (*Library, error) {
	m, err := newMetrics(reg)
	if err != nil {
		return nil, fmt.Errorf("register module library metrics: %w", err)
	}
	return &Library{store: s, loader: loader, metrics: m}, nil
}

// Stored is what Put did.
type Stored struct {
	Module  store.Module
	Info    *host.Info
	Checked host.Checked
	Created bool // the name is new or has other bytes
}

// Put checks a module and stores it under a name; dry checks only. A
// *fleet.FieldError for a bad name, store.ErrOwned for a name of the module
// directory, a *host.LoadError for a module that cannot load: nothing is stored
// then. The caller must not change wasm any more: what is loaded of it may be
// shared.
func (l *Library) Put(ctx context.Context, name string, wasm []byte, dry bool) (Stored, error) {
	if err := l.mayPut(name); err != nil {
		return Stored{}, fmt.Errorf("store module %q: %w", name, err)
	}
	out := Stored{}
	var err error
	if out.Info, out.Checked, err = l.check(ctx, wasm); err != nil {
		return Stored{}, err
	}
	digest := out.Info.Digest
	if dry {
		l.forget(digest)
		out.Module = store.Module{Name: name, Digest: digest, Size: int64(len(wasm)), At: time.Now().UTC(), Source: store.SourceAPI}
		return out, nil
	}
	if out.Module, out.Created, err = l.store.Put(name, bytes.NewReader(wasm), digest); err != nil {
		l.forget(digest)
		return Stored{}, err
	}
	return out, nil
}

// mayPut tells early what the store would refuse in the end.
func (l *Library) mayPut(name string) error {
	if err := store.CheckName(name); err != nil {
		return err
	}
	if m, err := l.store.Get(name); err == nil && m.Source != store.SourceAPI {
		return fmt.Errorf("%w: %q is from source %s", store.ErrOwned, name, m.Source)
	}
	return nil
}

// check takes a module through the load pipeline. When it is refused, nothing
// of it is left.
func (l *Library) check(ctx context.Context, wasm []byte) (*host.Info, host.Checked, error) {
	info, err := host.Inspect(wasm)
	if err != nil {
		return nil, "", err
	}
	how, err := l.loader.Check(ctx, wasm)
	if err != nil {
		l.forget(info.Digest)
		return nil, "", err
	}
	return info, how, nil
}

// forget drops the compiled form of bytes that are not stored. Bytes that are
// stored at the same moment are compiled again when they are used.
func (l *Library) forget(digest string) {
	if !l.store.Has(digest) {
		l.loader.Forget(digest)
	}
}

// Get finds a name; store.ErrNotFound when there is none.
func (l *Library) Get(name string) (store.Module, error) { return l.store.Get(name) }

// List returns all names in order.
func (l *Library) List() []store.Module { return l.store.List() }

// Bytes reads the module with a digest; store.ErrNotFound when there is none.
func (l *Library) Bytes(digest string) ([]byte, error) { return l.store.Bytes(digest) }

// Delete removes a name that was put; store.ErrNotFound, store.ErrInUse while a
// kept policy revision uses it, store.ErrOwned for a name of the directory.
func (l *Library) Delete(name string) error { return l.store.Delete(name) }

// Status is how the module directory stands.
type Status struct {
	Path      string     `json:"path"`
	AppliedAt *time.Time `json:"applied_at"` // when the set in force was found good; null before the first
	Error     string     `json:"error"`      // why the files as they are now are not in force; empty when they are
	ErrorAt   *time.Time `json:"error_at"`   // since when
	Kept      []string   `json:"kept"`       // names whose files are gone and that a policy revision still uses
}

// Directory tells how the module directory stands; false without one.
func (l *Library) Directory() (Status, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.directory == nil {
		return Status{}, false
	}
	return *l.directory, true
}

// note changes the directory's status.
func (l *Library) note(change func(*Status)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	next := Status{}
	if l.directory != nil {
		next = *l.directory
	}
	change(&next)
	l.directory = &next
}
