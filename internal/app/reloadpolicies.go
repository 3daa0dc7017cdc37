package app

import (
	"cmp"
	"context"
	"log/slog"

	"github.com/routerd/routerd/admin"
	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/host"
	"github.com/routerd/routerd/internal/config"
)

// followLimits has the limits of guest modules follow the configuration.
func followLimits(r *reloads, rt *host.Runtime, ps *host.PolicySource) {
	keys := []string{"plugins.call_deadline", "plugins.pool_wait", "plugins.memory_limit", "plugins.fuel_cap", "plugins.headers"}
	r.follow(settingsLast, part{keys: keys, prepare: func(_ context.Context, now *config.Config) (prepared, error) {
		limits, p := rt.Limits(), now.Plugins
		limits.CallDeadline, limits.PoolWait = p.CallDeadline.Std(), p.PoolWait.Std()
		limits.MemoryLimit, limits.FuelCap, limits.Headers = int64(p.MemoryLimit), p.FuelCap, p.Headers
		return settled(func() { rt.SetLimits(limits) }), cmp.Or(rt.CheckLimits(limits), ps.CheckHeaders(limits.Headers))
	}})
}

// followPolicies has seeds, rules and the guard follow the configuration.
func followPolicies(r *reloads, ps *host.PolicySource, c *core.SelectionCore, d *dataDir, m moduleDir, log *slog.Logger) {
	log = log.With("component", "reload")
	r.follow(policiesThen, part{
		keys: []string{"policies.", "routing.", "models.", "plugins.guard"},
		prepare: func(ctx context.Context, now *config.Config) (prepared, error) {
			p, err := ps.PrepareConfig(ctx, policyConfig(now, d))
			if err != nil {
				return prepared{}, hintAtBuiltins(m.explain(err))
			}
			return prepared{
				warn: driftWarnings(p.Drifted()),
				publish: func() error {
					if err := p.Publish(); err != nil {
						return err
					}
					if err := c.ResolvePolicies(); err != nil { // the names were checked
						log.Error("partitions keep the policies that they had", "err", err)
					}
					return nil
				},
				discard: func() {
					if err := p.Discard(); err != nil {
						log.Error("prepared policies not given back", "err", err)
					}
				},
			}, nil
		},
	})
}

// driftWarnings tell of policies of the file that are not in force.
func driftWarnings(names []string) []admin.ReloadWarning {
	var out []admin.ReloadWarning
	for _, name := range names {
		out = append(out, admin.ReloadWarning{
			Code: "drifted", Item: "policies." + name,
			Message: "not in force: the API activated another specification; apply and activate the file's to follow the file again",
		})
	}
	return out
}
