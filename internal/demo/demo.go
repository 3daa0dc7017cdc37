// Package demo runs a whole router with nothing but itself: three simulated
// engines, the router as `routerd serve` has it, a Wasm policy that is put and
// activated through the admin API, light traffic, and a live table.
//
// Run owns everything that it starts and ends it before it returns.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/internal/app"
	"github.com/routerd/routerd/internal/cli"
	"github.com/routerd/routerd/internal/config"
	"github.com/routerd/routerd/sim"
)

// engineBlocks is each engine's cache: enough for a third of what the traffic
// shares and not for all of it, so that it matters who gets which request.
const engineBlocks = 224

// Model is the model that the demo's engines serve.
const Model = "demo"

// Options sets the demo up.
type Options struct {
	Frontend string // HOST:PORT
	Admin    string // HOST:PORT
	Plugins  string // folder with kv-aware.wasm and least-loaded.wasm
	Traffic  bool   // whether the demo talks to itself
	Out      io.Writer
	Terminal bool // whether Out is one: then a table, else a line every 5 s
	Log      *slog.Logger
}

// engineNames are the simulated engines.
func engineNames() []string { return []string{"engine-1", "engine-2", "engine-3"} }

// Run runs the demo until ctx ends, which is no error at any time.
func Run(ctx context.Context, o Options) (err error) {
	dir, err := os.MkdirTemp("", "routerd-demo-")
	if err != nil {
		return fmt.Errorf("make the demo's folder: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()

	engines, err := startEngines(o.Log)
	defer func() {
		for _, e := range engines {
			err = errors.Join(err, e.Close())
		}
	}()
	if err != nil {
		return err
	}
	cfg, err := demoConfig(dir, o, engines)
	if err != nil {
		return err
	}
	router, err := app.Start(ctx, cfg, o.Log)
	if app.Interrupted(ctx, err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("start the router (--frontend.listen, --admin.listen and --plugins are the demo's flags): %w", err)
	}
	defer func() { err = errors.Join(err, router.Stop(context.Background())) }()

	client := cli.NewClient(router.AdminURL(), router.Token())
	err = setPolicies(ctx, client, o.Plugins)
	if app.Interrupted(ctx, err) {
		return nil
	}
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(o.Out, "ready frontend=%s admin=%s token=%s\n", router.FrontendURL(), router.AdminURL(), router.Token()); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return o.live(ctx, router, client, engines)
}

// live talks and shows until ctx ends.
func (o Options) live(ctx context.Context, router *app.App, client *cli.Client, engines []*sim.Engine) error {
	group, ctx := errgroup.WithContext(ctx)
	talk := newTraffic(router.FrontendURL())
	if o.Traffic {
		group.Go(func() error {
			talk.run(ctx)
			return nil
		})
	}
	show := &screen{out: o.Out, terminal: o.Terminal, router: router, client: client, talk: talk, engines: map[string]string{}, counts: map[string][]tokens{}}
	for i, e := range engines {
		show.engines[engineNames()[i]] = e.URL()
	}
	group.Go(func() error { return show.run(ctx) })
	group.Go(func() error { return router.Wait(ctx) })
	if err := group.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

func startEngines(log *slog.Logger) ([]*sim.Engine, error) {
	var engines []*sim.Engine
	for _, name := range engineNames() {
		c := sim.DefaultConfig()
		c.Name, c.Model, c.Blocks, c.Slots = name, Model, engineBlocks, 8
		c.PrefillPerToken, c.DecodePerToken = 200*time.Microsecond, 8*time.Millisecond
		e, err := sim.New(c, log.With("component", "sim"))
		if err != nil {
			return engines, fmt.Errorf("make %s: %w", name, err)
		}
		if err := e.Start(); err != nil {
			return engines, fmt.Errorf("start %s: %w", name, err)
		}
		engines = append(engines, e)
	}
	return engines, nil
}

func demoConfig(dir string, o Options, engines []*sim.Engine) (config.Config, error) {
	cfg := config.DefaultConfig()
	cfg.DataDir, cfg.Index.Dump = dir, false // the folder goes with the demo
	cfg.Frontend.Listen, cfg.Admin.Listen = o.Frontend, o.Admin
	cfg.Frontend.Grace = config.Duration(2 * time.Second)
	for i, e := range engines {
		rec, err := fleet.Record{
			ID: fleet.WorkerID(i + 1), Name: engineNames()[i], URL: e.URL(), Model: Model,
			KVEvents: e.EventEndpoints(), Replay: e.ReplayEndpoints(),
		}.Normalised()
		if err != nil {
			return cfg, fmt.Errorf("describe %s: %w", engineNames()[i], err)
		}
		cfg.Workers.Static = append(cfg.Workers.Static, rec)
	}
	return cfg, nil
}

// setPolicies uploads the modules and activates first the one, then the other,
// so that there is a revision to roll back to.
func setPolicies(ctx context.Context, client *cli.Client, dir string) error {
	for _, name := range []string{"least-loaded", "kv-aware"} {
		module, err := os.ReadFile(filepath.Join(dir, name+".wasm"))
		if err != nil {
			return fmt.Errorf("read the demo's plugin (make plugins builds it): %w", err)
		}
		if err := client.Do(ctx, "PUT", "/v1/modules/"+name, module, nil); err != nil {
			return fmt.Errorf("put module %s: %w", name, err)
		}
		spec := map[string]any{"scorers": []any{map[string]any{"use": "module:" + name}}}
		var made struct {
			Revision int `json:"revision"`
		}
		if err := client.Do(ctx, "PUT", "/v1/policies/default", spec, &made); err != nil {
			return fmt.Errorf("put policy with module %s: %w", name, err)
		}
		if err := client.Do(ctx, "POST", "/v1/policies/default/activate", map[string]any{"revision": made.Revision}, nil); err != nil {
			return fmt.Errorf("activate policy with module %s: %w", name, err)
		}
	}
	return nil
}
