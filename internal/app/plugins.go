package app

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/fx"

	"github.com/routerd/routerd/host"
	"github.com/routerd/routerd/host/library"
	"github.com/routerd/routerd/host/store"
	"github.com/routerd/routerd/internal/config"
)

// pluginsModule runs guest modules and keeps policies.
func pluginsModule(ctx context.Context) fx.Option {
	return fx.Module("plugins",
		fx.Provide(newRuntime),
		fx.Provide(func(rt *host.Runtime, modules *store.Store, cfg config.Config, log *slog.Logger, reg prometheus.Registerer) (*library.Library, moduleDir, error) {
			return newLibrary(ctx, rt, modules, cfg, log, reg)
		}),
		fx.Provide(func(opened *closers, rt *host.Runtime, modules *store.Store, _ *library.Library, cfg config.Config, d *dataDir, metrics *selectionMetrics, log *slog.Logger) (*host.PolicySource, error) {
			return newPolicySource(ctx, opened, rt, modules, cfg, d, metrics, log)
		}),
		fx.Invoke(runPolicies),
		fx.Invoke(followModuleDir, followLimits, followPolicies),
	)
}

func newRuntime(opened *closers, cfg config.Config, d *dataDir, log *slog.Logger, reg prometheus.Registerer) (*host.Runtime, error) {
	child, err := host.NewChild()
	if err != nil {
		return nil, fmt.Errorf("find this program for compiling: %w", err)
	}
	hc := host.DefaultConfig()
	hc.Compiler = child
	if hc.CacheDir, err = d.compiledDir(); err != nil {
		return nil, fmt.Errorf("make the folder of compiled modules: %w", err)
	}
	p := cfg.Plugins
	hc.CallDeadline, hc.PoolWait, hc.MemoryLimit, hc.FuelCap = p.CallDeadline.Std(), p.PoolWait.Std(), int64(p.MemoryLimit), p.FuelCap
	hc.Headers = p.Headers
	rt, err := host.New(hc, log.With("component", "host"), reg)
	if err != nil {
		return nil, err
	}
	opened.add(rt.Close)
	return rt, nil
}

func newPolicySource(
	ctx context.Context, opened *closers, rt *host.Runtime, modules *store.Store, cfg config.Config, d *dataDir, metrics *selectionMetrics, log *slog.Logger,
) (*host.PolicySource, error) {
	pc := policyConfig(&cfg, d)
	pc.Removed = metrics.forget
	ps, err := host.OpenPolicySource(ctx, rt, modules, pc, log.With("component", "policies"))
	if err != nil {
		return nil, hintAtBuiltins(err)
	}
	opened.add(ps.Close)
	return ps, nil
}

// runPolicies lets what no decision waits for run beside the app: trips that are
// written down, probes, shadows.
func runPolicies(lc fx.Lifecycle, ps *host.PolicySource, reg prometheus.Registerer, failed failures) error {
	if err := reg.Register(ps.Metrics()); err != nil {
		return fmt.Errorf("register metrics of policies: %w", err)
	}
	background(lc, failed, "policy rollouts", ps.Run)
	return nil
}

// policyConfig is what the configuration says of policies.
func policyConfig(cfg *config.Config, d *dataDir) host.PolicyConfig {
	pc := host.PolicyConfig{
		Dir: d.file("policies"), Default: cfg.Routing.Default, Seeds: cfg.Policies,
		Models: map[string]string{}, GuardOff: cfg.Plugins.Guard == "off",
	}
	for _, r := range cfg.Routing.Rules {
		pc.Rules = append(pc.Rules, host.Rule{Model: r.Model, Group: r.Group, Class: r.Class, Policy: r.Policy})
	}
	for name, m := range cfg.Models {
		if m.Policy != "" {
			pc.Models[name] = m.Policy
		}
	}
	return pc
}
