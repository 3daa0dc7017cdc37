package app

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/fx"

	"github.com/routerd/routerd/admin"
	"github.com/routerd/routerd/internal/config"
)

// errStopping ends and refuses reloads of a router that stops.
var errStopping = errors.New("the router is shutting down")

// reloadModule puts a changed configuration in force while the router runs.
func reloadModule() fx.Option {
	return fx.Module("reload", fx.Provide(newLive, newReloads, newConfigWatch), fx.Invoke(warnOfConfig, followConfigFile))
}

// live is the configuration in force; what it points to is never changed.
type live struct{ atomic.Pointer[config.Config] }

func newLive(cfg config.Config) *live {
	l := &live{}
	l.Store(&cfg)
	return l
}

// A reload has three stages, so that it happens as a whole or not at all: all
// parts that are concerned check and prepare, without effect; then all publish,
// those first that can still fail, whose publishing can be taken back; then
// what needs no answer is started.

// part is a part of the router that follows the configuration.
type part struct {
	// keys are the prefixes of the keys that it follows; nil follows all reloads,
	// also those where no key has changed.
	keys []string
	// refuse names what stands against a change; nil for nothing.
	refuse func(was, now *config.Config) []admin.ReloadProblem
	// prepare does what can fail, without effect.
	prepare func(ctx context.Context, now *config.Config) (prepared, error)
}

// prepared is what a part will do. Each function but publish may be nil.
type prepared struct {
	publish func() error // an error means that it had no effect
	undo    func()       // takes publish back
	discard func()       // gives up what was never published
	after   func(ctx context.Context)
	changed []string // keys whose content changed though their value did not
	warn    []admin.ReloadWarning
}

// settled is what a part does that cannot fail.
func settled(publish func()) prepared {
	return prepared{publish: func() error { publish(); return nil }}
}

func (p *part) concerned(changed []string) bool {
	return p.keys == nil || slices.ContainsFunc(changed, func(key string) bool {
		return slices.ContainsFunc(p.keys, func(prefix string) bool { return strings.HasPrefix(key, prefix) })
	})
}

// order is when a part publishes: those whose publishing can fail come before
// the others, the one that cannot be taken back last of them.
type order int

const (
	modelsFirst  order = iota // what new workers ask
	workersNext               // can fail, can be taken back
	policiesThen              // can fail
	settingsLast              // cannot fail
	orders
)

// reloads makes one reload at a time. Safe for concurrent use.
type reloads struct {
	load    func() (config.Config, error)
	live    *live
	log     *slog.Logger
	metrics *reloadMetrics
	parts   [orders][]part // complete before the first reload

	turn chan struct{} // capacity 1: holds a token while a reload runs, and for ever after the end
	//nolint:containedctx // the lifetime of all reloads
	running context.Context
	end     context.CancelCauseFunc
	closing sync.Once
	last    atomic.Pointer[admin.LastReload]
}

func newReloads(from *source, l *live, log *slog.Logger, m *reloadMetrics) *reloads {
	r := &reloads{load: from.load, live: l, log: log.With("component", "reload"), metrics: m, turn: make(chan struct{}, 1)}
	r.running, r.end = context.WithCancelCause(context.Background())
	if r.load == nil {
		r.load = func() (config.Config, error) { return *l.Load(), nil }
	}
	r.follow(modelsFirst, part{keys: []string{""}, prepare: func(_ context.Context, now *config.Config) (prepared, error) {
		was := l.Load()
		p := settled(func() { l.Store(now) })
		p.undo = func() { l.Store(was) }
		return p, nil
	}})
	if from.log != nil {
		r.follow(settingsLast, part{keys: []string{"log."}, prepare: func(_ context.Context, now *config.Config) (prepared, error) {
			return settled(func() { from.log.Configure(now.Log) }), nil
		}})
	}
	return r
}

// follow adds a part; nothing reloads before the router has started.
func (r *reloads) follow(at order, p part) { r.parts[at] = append(r.parts[at], p) }

// Reload reads the configuration again for the admin API.
func (r *reloads) Reload(ctx context.Context) (admin.Reloaded, error) { return r.reload(ctx, byAPI) }

// reload waits for its turn, reads the configuration and puts it in force. by
// says who asked, for the log and the metrics.
func (r *reloads) reload(ctx context.Context, by string) (admin.Reloaded, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(r.running, func() { cancel(errStopping) })()
	done, err := r.inTurn(ctx)
	if err != nil && r.running.Err() != nil {
		err = &admin.ReloadError{Code: admin.CodeUnavailable, Problems: []admin.ReloadProblem{{Text: errStopping.Error()}}}
	}
	r.metrics.count(by, err)
	r.keep(by, done, err)
	if err != nil {
		r.log.Error("configuration not reloaded: the old one stays in force", "by", by, "err", err)
		return admin.Reloaded{}, err
	}
	r.log.Info("configuration reloaded", "by", by, "changed", done.Changed)
	logWarnings(r.log, done.Warnings)
	return done, nil
}

// keep notes how a reload ended.
func (r *reloads) keep(by string, done admin.Reloaded, err error) {
	last := &admin.LastReload{At: time.Now().UTC().Truncate(time.Millisecond), Trigger: by, Result: reloadOK, Changed: []string{}, Problems: []string{}}
	last.Changed = append(last.Changed, done.Changed...)
	if refused, ok := errors.AsType[*admin.ReloadError](err); ok {
		for _, p := range refused.Problems {
			last.Problems = append(last.Problems, p.Text)
		}
	} else if err != nil {
		last.Problems = append(last.Problems, err.Error())
	}
	if err != nil {
		last.Result = reloadRefused
	}
	r.last.Store(last)
}

// LastReload is how the last reload ended.
func (r *reloads) LastReload() (admin.LastReload, bool) {
	if last := r.last.Load(); last != nil {
		return *last, true
	}
	return admin.LastReload{}, false
}

func (r *reloads) inTurn(ctx context.Context) (admin.Reloaded, error) {
	select {
	case r.turn <- struct{}{}:
		defer func() { <-r.turn }()
	case <-ctx.Done():
		return admin.Reloaded{}, context.Cause(ctx)
	}
	now, err := r.load()
	if err != nil {
		return admin.Reloaded{}, refusedReading(err)
	}
	return r.apply(ctx, &now)
}

// apply puts a checked configuration in force as a whole.
func (r *reloads) apply(ctx context.Context, now *config.Config) (admin.Reloaded, error) {
	was := r.live.Load()
	changed, fixed := config.Changed(*was, *now)
	parts := r.concerned(changed)
	if err := refusedChange(was, now, fixed, parts); err != nil {
		return admin.Reloaded{}, err
	}
	ready, err := prepareAll(ctx, parts, now)
	if err != nil {
		return admin.Reloaded{}, refusedPreparing(err)
	}
	if err := cmp.Or(context.Cause(r.running), context.Cause(ctx)); err != nil {
		discard(ready)
		return admin.Reloaded{}, err
	}
	if err := publishAll(ready); err != nil {
		return admin.Reloaded{}, refusedPreparing(err)
	}
	done := admin.Reloaded{Changed: changed, At: time.Now().UTC().Truncate(time.Millisecond)}
	for _, p := range ready {
		done.Changed = append(done.Changed, p.changed...)
		done.Warnings = append(done.Warnings, p.warn...)
		if p.after != nil {
			p.after(ctx)
		}
	}
	slices.Sort(done.Changed)
	done.Changed = slices.Compact(done.Changed)
	return done, nil
}

// concerned lists the parts that follow a change, in the order of publishing.
func (r *reloads) concerned(changed []string) []part {
	var out []part
	for _, same := range r.parts {
		for _, p := range same {
			if p.concerned(changed) {
				out = append(out, p)
			}
		}
	}
	return out
}

func prepareAll(ctx context.Context, parts []part, now *config.Config) ([]prepared, error) {
	ready := make([]prepared, 0, len(parts))
	for _, p := range parts {
		one, err := p.prepare(ctx, now)
		if err != nil {
			discard(ready)
			return nil, err
		}
		ready = append(ready, one)
	}
	return ready, nil
}

// publishAll publishes in order. Where one fails, those before it are taken
// back, last first, and those after it given up.
func publishAll(ready []prepared) error {
	for i, p := range ready {
		err := p.publish()
		if err == nil {
			continue
		}
		discard(ready[i:])
		for _, before := range slices.Backward(ready[:i]) {
			if before.undo != nil {
				before.undo()
			}
		}
		return err
	}
	return nil
}

func discard(ready []prepared) {
	for _, p := range slices.Backward(ready) {
		if p.discard != nil {
			p.discard()
		}
	}
}

// close cancels the reload under way, waits for it and refuses all further
// ones. It is idempotent.
func (r *reloads) close() {
	r.closing.Do(func() {
		r.end(errStopping)
		r.turn <- struct{}{}
	})
}
