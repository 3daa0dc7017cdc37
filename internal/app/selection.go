package app

import (
	"context"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/fx"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/host"
	"github.com/routerd/routerd/ingress/zmq"
	"github.com/routerd/routerd/internal/config"
)

// selectionModule is the core, the indexes that it asks and the streams that
// feed them.
func selectionModule() fx.Option {
	return fx.Module("selection", fx.Provide(newIngress, newCaches, newSelectionMetrics, newCore), fx.Invoke(followCore))
}

func newIngress(lc fx.Lifecycle, log *slog.Logger, reg prometheus.Registerer, failed failures) (*zmq.DirectIngress, error) {
	in, err := zmq.New(zmq.DefaultConfig(), log.With("component", "ingress"), reg)
	if err != nil {
		return nil, err
	}
	background(lc, failed, "event ingress", in.Run)
	return in, nil
}

func newCore(
	lc fx.Lifecycle, cfg config.Config, policies *host.PolicySource, index *caches, metrics *selectionMetrics, log *slog.Logger,
) (*core.SelectionCore, error) {
	cc := coreConfig(&cfg)
	if err := cc.Validate(); err != nil {
		return nil, err
	}
	c := core.New(cc, core.SelectionHost{Telemetry: metrics}, policies, index, log.With("component", "core"))
	lc.Append(fx.StopHook(c.Close))
	return c, nil
}

// coreConfig is what the configuration says of the core.
func coreConfig(cfg *config.Config) core.Config {
	cc := core.DefaultConfig()
	cc.TurnLimit = max(cfg.Plugins.PoolWait.Std()+cfg.Plugins.CallDeadline.Std(), 1)
	if seed := cfg.Routing.Seed; seed != 0 {
		cc.Seed = &seed
	}
	return cc
}

// followCore has the core's draws and the limit of a turn follow the
// configuration.
func followCore(r *reloads, c *core.SelectionCore) {
	keys := []string{"routing.seed", "plugins.call_deadline", "plugins.pool_wait"}
	r.follow(settingsLast, part{keys: keys, prepare: func(_ context.Context, now *config.Config) (prepared, error) {
		cc := coreConfig(now)
		if err := cc.Validate(); err != nil {
			return prepared{}, err
		}
		return prepared{publish: func() error { return c.Configure(cc) }}, nil
	}})
}
