package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"go.uber.org/dig"
	"go.uber.org/fx"
	"go.uber.org/fx/fxevent"

	"github.com/routerd/routerd/internal/config"
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
	fx     *fx.App
	cfg    config.Config
	failed failures
	addr   *addresses
	opened *closers
}

// addresses are where the listeners are, with the ports that they got.
type addresses struct {
	frontend, admin, token string
	drained                error // what the frontend's drain said
}

// modules is the whole router in the order in which data flows.
func modules(ctx context.Context, cfg config.Config, log *slog.Logger, failed failures, addr *addresses, opened *closers) fx.Option {
	return fx.Options(
		fx.Supply(cfg, log, failed, addr, opened),
		fx.WithLogger(func() fxevent.Logger { return wiringLog(log) }),
		fx.StartTimeout(startTimeout),
		fx.StopTimeout(cfg.Frontend.Grace.Std()+stopTimeout),
		telemetryModule(),
		stateModule(),
		pluginsModule(ctx),
		selectionModule(),
		membershipModule(),
		adminModule(),
		proxyModule(),
	)
}

// Start starts a router from a checked configuration. When it returns without
// an error, the listeners are open and the router is ready.
func Start(ctx context.Context, cfg config.Config, log *slog.Logger) (*App, error) {
	a := &App{cfg: cfg, failed: make(failures, 1), addr: &addresses{}, opened: &closers{}}
	a.fx = fx.New(modules(ctx, cfg, log, a.failed, a.addr, a.opened))
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

// Stop drains the frontend for at most the configured grace, then stops
// everything. The error is ErrGrace when requests were cut off.
func (a *App) Stop(ctx context.Context) error {
	if err := a.stop(ctx); err != nil {
		return err
	}
	return a.addr.drained
}

func (a *App) stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.Frontend.Grace.Std()+stopTimeout)
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

// Token is the admin API's bearer token.
func (a *App) Token() string { return a.addr.token }
