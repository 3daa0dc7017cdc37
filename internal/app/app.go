package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"go.uber.org/dig"
	"go.uber.org/fx"
	"go.uber.org/fx/fxevent"

	"github.com/routerd/routerd/internal/config"
	"github.com/routerd/routerd/internal/filewatch"
)

// ErrGrace says that requests were cut off because the grace ran out.
var ErrGrace = errors.New("the grace ran out before all requests ended")

const (
	// startTimeout is long: a start may compile modules that are new to the cache.
	startTimeout = 10 * time.Minute
	// stopTimeout is what stopping may take beside the grace.
	stopTimeout = 10 * time.Second
)

// App is a running router.
type App struct {
	fx      *fx.App
	live    *live
	reloads *reloads
	failed  failures
	addr    *addresses
	opened  *closers
}

// source is where a configuration comes from after the start.
type source struct {
	load func() (config.Config, error) // nil for a configuration that never changes
	log  *Log                          // nil for a log that is not the configuration's

	file string         // whose changes are followed; empty for none
	seen filewatch.Seen // what it held before it was read
}

// Option is a further setting of Start.
type Option func(*source)

// Reloading makes the configuration one that can be reloaded: load reads it
// again, whole and checked, and log follows its log settings. load is called by
// one goroutine at a time.
func Reloading(load func() (config.Config, error), log *Log) Option {
	return func(s *source) { s.load, s.log = load, log }
}

// addresses are where the listeners are, with the ports that they got.
type addresses struct {
	frontend, admin string
	selection       string // its URL, or unix:PATH; empty when it is off
	index           string // as selection
	token           atomic.Pointer[string]
	drained         error // what the frontend's drain said
}

// modules is the whole router in the order in which data flows.
func modules(ctx context.Context, cfg config.Config, from *source, log *slog.Logger, failed failures, addr *addresses, opened *closers) fx.Option {
	return fx.Options(
		fx.Supply(cfg, from, log, failed, addr, opened),
		fx.WithLogger(func() fxevent.Logger { return wiringLog(log) }),
		fx.StartTimeout(startTimeout),
		telemetryModule(),
		reloadModule(),
		stateModule(),
		pluginsModule(ctx),
		watchModule(),
		selectionModule(),
		membershipModule(),
		adminModule(),
		proxyModule(),
		serviceModule(&cfg),
		indexModule(&cfg),
		fx.Invoke(runConfigWatch), // last: a reload finds everything started
	)
}

// Start starts a router from a checked configuration. When it returns without
// an error, the listeners are open and the router is ready.
func Start(ctx context.Context, cfg config.Config, log *slog.Logger, options ...Option) (*App, error) {
	from := &source{}
	for _, o := range options {
		o(from)
	}
	return start(ctx, cfg, from, log)
}

// start is Start with further parts of the wiring.
func start(ctx context.Context, cfg config.Config, from *source, log *slog.Logger, more ...fx.Option) (*App, error) {
	a := &App{failed: make(failures, 1), addr: &addresses{}, opened: &closers{}}
	a.fx = fx.New(modules(ctx, cfg, from, log, a.failed, a.addr, a.opened), fx.Populate(&a.live, &a.reloads), fx.Options(more...))
	err := a.fx.Err()
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, startTimeout)
		defer cancel()
		err = a.fx.Start(ctx)
	}
	if err != nil {
		return nil, errors.Join(dig.RootCause(err), a.stop(context.WithoutCancel(ctx)))
	}
	return a, nil
}

// Interrupted tells whether err says nothing but that ctx, with which the router
// was started, ended.
func Interrupted(ctx context.Context, err error) bool {
	return ctx.Err() != nil && (errors.Is(err, ctx.Err()) || errors.Is(err, context.Cause(ctx)))
}

// Wait blocks until ctx ends, which is no error, or a part of the router fails.
func (a *App) Wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-a.failed:
		return err
	}
}

// Reload reads the configuration again and puts it in force as a whole. An
// error, which the log has too, means that the old one stays in force as a
// whole. One reload runs at a time; during Stop all are refused.
func (a *App) Reload(ctx context.Context) error {
	_, err := a.reloads.reload(ctx, bySignal)
	return err
}

// Stop drains the frontend for at most the configured grace, then stops
// everything. The error is ErrGrace when requests were cut off.
func (a *App) Stop(ctx context.Context) error {
	if err := a.stop(ctx); err != nil {
		return err
	}
	return a.addr.drained
}

func (a *App) stop(ctx context.Context) error {
	grace := time.Duration(0)
	if a.reloads != nil {
		a.reloads.close() // so that the grace is the last one
		grace = a.live.Load().Frontend.Grace.Std()
	}
	ctx, cancel := context.WithTimeout(ctx, grace+stopTimeout)
	defer cancel()
	err := a.fx.Stop(ctx)
	if err != nil {
		err = fmt.Errorf("stop: %w", err)
	}
	return errors.Join(err, a.opened.closeAll())
}

// FrontendURL is the base URL of the OpenAI-compatible frontend.
func (a *App) FrontendURL() string { return "http://" + a.addr.frontend }

// AdminURL is the base URL of the admin API.
func (a *App) AdminURL() string { return "http://" + a.addr.admin }

// SelectionAddress is the base URL of the selection service, or unix:PATH; empty
// when it is off.
func (a *App) SelectionAddress() string { return a.addr.selection }

// IndexAddress is the base URL at which other routers read the index, or unix:PATH; empty
// when it is off.
func (a *App) IndexAddress() string { return a.addr.index }

// Token is the admin API's bearer token.
func (a *App) Token() string { return *a.addr.token.Load() }
