package library

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/routerd/routerd/host"
	"github.com/routerd/routerd/host/store"
	"github.com/routerd/routerd/plugins/abi"
)

const (
	defaultInterval = 10 * time.Second
	defaultDebounce = 250 * time.Millisecond
	maxLooks        = 20 // at a directory that changes from look to look
	retryAfter      = 6  // intervals, for a set that only the moment was against
)

// DirConfig sets a module directory up.
type DirConfig struct {
	// Path of the directory; NAME.wasm in it is the module NAME.
	Path string
	// Interval of the full comparisons; 0 is 10 s. Hints of the operating system
	// only bring them forward.
	Interval time.Duration
	// Debounce is how far apart two looks that see the same are; 0 is 250 ms.
	Debounce time.Duration
}

// Dir keeps the names of the module directory those of its files. Load first, then
// Run; Load again at any time. Safe for concurrent use.
type Dir struct {
	cfg DirConfig
	lib *Library
	log *slog.Logger

	turn chan struct{} // capacity 1: holds a token while somebody compares, who alone may use what is below

	refused string    // key of the last set that could not be applied
	again   time.Time // when it is tried again; zero is never
	said    string    // the reason that was logged last
}

// NewDir makes the Dir of a library. It reads nothing yet.
func NewDir(cfg DirConfig, lib *Library, log *slog.Logger) *Dir {
	if cfg.Interval == 0 {
		cfg.Interval = defaultInterval
	}
	if cfg.Debounce == 0 {
		cfg.Debounce = defaultDebounce
	}
	lib.note(func(s *Status) { s.Path, s.Kept = cfg.Path, []string{} })
	return &Dir{cfg: cfg, lib: lib, log: log, turn: make(chan struct{}, 1)}
}

// Load brings the names up to the files once, so that what is started next finds
// them. Files that are bad are no error: the last good set stays in force, and
// Library.Directory says why. It waits for a comparison that is under way. The
// error is that ctx ended.
func (d *Dir) Load(ctx context.Context) error { return d.sync(ctx) }

// Run keeps comparing until ctx ends.
func (d *Dir) Run(ctx context.Context) error {
	hints := newHints(d.cfg.Path, d.log)
	defer hints.close()
	tick := time.NewTicker(d.cfg.Interval)
	defer tick.Stop()
	for {
		hints.watch()
		if err := d.sync(ctx); err != nil {
			return nil // ctx has ended
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-hints.came:
			if d.pause(ctx) != nil { // hints come in swarms
				return nil
			}
		}
	}
}

// pause waits a debounce. The error is that ctx ended.
func (d *Dir) pause(ctx context.Context) error {
	wait := time.NewTimer(d.cfg.Debounce)
	defer wait.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-wait.C:
		return nil
	}
}

// sync compares once and applies what is new. The error is that ctx ended.
func (d *Dir) sync(ctx context.Context) error {
	select {
	case d.turn <- struct{}{}:
		defer func() { <-d.turn }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	seen, err := lookAt(ctx, d.cfg.Path)
	if err == nil && d.inForce(seen) {
		d.good(store.Change{}, false)
		return nil
	}
	seen, err = d.settle(ctx, seen, err)
	if err == nil && d.tried(seen) {
		return nil
	}
	var change store.Change
	if err == nil {
		change, err = d.apply(ctx, seen)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		d.bad(seen, err)
		return nil
	}
	d.good(change, true)
	return nil
}

// tried tells whether a look is the one that could not be applied last time and
// is not due again.
func (d *Dir) tried(seen look) bool {
	return d.refused != "" && seen.key() == d.refused && (d.again.IsZero() || time.Now().Before(d.again))
}

// settle looks until two looks, a debounce apart, see the same.
func (d *Dir) settle(ctx context.Context, seen look, err error) (look, error) {
	for range maxLooks {
		if err := d.pause(ctx); err != nil {
			return nil, err
		}
		again, aerr := lookAt(ctx, d.cfg.Path)
		same := again.key() == seen.key() && fmt.Sprint(err) == fmt.Sprint(aerr)
		seen, err = again, aerr
		if same && !errors.Is(err, errMoving) {
			return seen, err
		}
	}
	return nil, errors.New("the files keep changing")
}

// inForce tells whether the names of the directory are those of a look.
func (d *Dir) inForce(seen look) bool {
	var names look
	for _, m := range d.lib.List() {
		if m.Source == store.SourceDir {
			names = append(names, file{name: m.Name, digest: m.Digest})
		}
	}
	return names.key() == seen.key()
}

// apply checks what is new in a look and makes it the directory's names.
func (d *Dir) apply(ctx context.Context, seen look) (change store.Change, err error) {
	have := map[string]store.Module{}
	for _, m := range d.lib.List() {
		have[m.Name] = m
	}
	for _, f := range seen {
		if m, ok := have[f.name]; ok && m.Source != store.SourceDir {
			return change, fmt.Errorf("file %q: %w: the name was put by API; remove it there or name the file otherwise", f.name+moduleSuffix, store.ErrOwned)
		}
	}
	var set []store.Entry
	defer func() {
		for _, e := range set {
			if e.Bytes == nil {
				continue
			}
			e.Bytes.Discard()
			if err != nil {
				d.lib.forget(e.Bytes.Digest)
			}
		}
	}()
	for _, f := range seen {
		e := store.Entry{Name: f.name}
		if have[f.name].Digest != f.digest {
			if e.Bytes, err = d.take(ctx, f); err != nil {
				return change, fmt.Errorf("file %q: %w", f.name+moduleSuffix, err)
			}
		}
		set = append(set, e)
	}
	return d.lib.store.Replace(set)
}

// take checks a file's module and stages its bytes.
func (d *Dir) take(ctx context.Context, f file) (*store.Staged, error) {
	var wasm bytes.Buffer
	again, err := readFile(d.cfg.Path, f.name+moduleSuffix, &wasm)
	if err != nil {
		return nil, err
	}
	if again.digest != f.digest {
		return nil, errMoving
	}
	if _, _, err := d.lib.check(ctx, wasm.Bytes()); err != nil {
		return nil, err
	}
	b, err := d.lib.store.Stage(&wasm, f.digest)
	if err != nil {
		d.lib.forget(f.digest)
	}
	return b, err
}

// good notes that the files are in force.
func (d *Dir) good(change store.Change, applied bool) {
	news := len(change.Set)+len(change.Removed) > 0
	d.lib.note(func(s *Status) {
		if applied {
			s.Kept = append([]string{}, change.Kept...)
		} else {
			s.Kept = []string{}
		}
		if news || s.AppliedAt == nil || s.Error != "" {
			now := time.Now().UTC()
			s.AppliedAt = &now
		}
		s.Error, s.ErrorAt = "", nil
	})
	d.refused = ""
	d.lib.metrics.refused.Set(0)
	if news || d.said != "" {
		d.lib.metrics.applied.Inc()
		d.log.Info("module directory applied", slog.Any("set", change.Set), slog.Any("removed", change.Removed), slog.Any("kept", change.Kept))
	}
	d.said = ""
}

// bad notes why the files are not in force; once for each reason.
func (d *Dir) bad(seen look, err error) {
	d.refused, d.again = "", time.Time{}
	if len(seen) > 0 && !errors.Is(err, store.ErrOwned) {
		d.refused = seen.key()
		if e, ok := errors.AsType[*host.LoadError](err); !ok || e.Code == abi.EPool {
			d.again = time.Now().Add(retryAfter * d.cfg.Interval)
		} // else the same bytes will not load next time either
	}
	d.lib.metrics.refused.Set(1)
	reason := err.Error()
	d.lib.note(func(s *Status) {
		if s.Error != reason {
			now := time.Now().UTC()
			s.Error, s.ErrorAt = reason, &now
		}
	})
	if d.said == reason {
		return
	}
	d.said = reason
	d.lib.metrics.failed.Inc()
	d.log.Error("module directory refused: the last good set stays", slog.String("path", d.cfg.Path), slog.Int("modules", len(seen)), slog.Any("err", err))
}
