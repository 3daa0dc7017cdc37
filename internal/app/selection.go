package app

import (
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
	return fx.Module("selection", fx.Provide(newIngress, newCaches, newCore, newDraws))
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
	lc fx.Lifecycle, cfg config.Config, policies *host.PolicySource, index *caches, log *slog.Logger, reg prometheus.Registerer,
) (*core.SelectionCore, error) {
	cc := core.DefaultConfig()
	cc.TurnLimit = max(cfg.Plugins.PoolWait.Std()+cfg.Plugins.CallDeadline.Std(), 1)
	if err := cc.Validate(); err != nil {
		return nil, err
	}
	c := core.New(cc, core.SelectionHost{Telemetry: newSelectionMetrics(reg)}, policies, index, log.With("component", "core"))
	lc.Append(fx.StopHook(c.Close))
	return c, nil
}
