package app

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/fx"

	"github.com/routerd/routerd/catalog/health"
	"github.com/routerd/routerd/catalog/scrape"
	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/host"
	"github.com/routerd/routerd/ingress/zmq"
	"github.com/routerd/routerd/internal/config"
)

// selectionModule is the core, the indexes that it asks and the streams that
// feed them.
func selectionModule() fx.Option {
	return fx.Module("selection", fx.Provide(newSocketConfig, newIngress, newCaches, newIndexes, newSelectionMetrics, newSharedCaches, newCore), fx.Invoke(followCore, followSharedCache, askPeers, keepIndex, closeIndexes, forgetDeserted))
}

// newSocketConfig is how the sockets to engines are, with the secret key that the configuration names.
func newSocketConfig(cfg config.Config) (zmq.Config, error) {
	out := cfg.Ingress.Sockets()
	file := cfg.Ingress.Curve.SecretKeyFile
	if file == "" {
		return out, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return out, fmt.Errorf("ingress.curve.secret_key_file: %w", err)
	}
	out.Curve.SecretKey = strings.TrimSpace(string(text))
	if err := zmq.CheckKey("the key in "+strconv.Quote(file), out.Curve.SecretKey); err != nil {
		return out, fmt.Errorf("ingress.curve.secret_key_file: %w", err)
	}
	return out, nil
}

func newIngress(lc fx.Lifecycle, cfg zmq.Config, log *slog.Logger, reg prometheus.Registerer, failed failures) (*zmq.DirectIngress, error) {
	in, err := zmq.New(cfg, log.With("component", "ingress"), reg)
	if err != nil {
		return nil, err
	}
	background(lc, failed, "event ingress", in.Run)
	return in, nil
}

func newCore(
	lc fx.Lifecycle, cfg config.Config, policies *host.PolicySource, index indexes, shared *sharedCaches, metrics *selectionMetrics,
	monitor *health.Monitor, scraper *scrape.Scraper, log *slog.Logger, reg prometheus.Registerer, failed failures,
) (*core.SelectionCore, error) {
	cc := coreConfig(&cfg)
	if err := cc.Validate(); err != nil {
		return nil, err
	}
	// Other routers have no source yet: the core does without.
	c := core.New(cc, core.SelectionHost{Load: scraper, Eligibility: monitor, Telemetry: metrics, SharedCache: shared}, policies, index, log.With("component", "core"))
	if err := reg.Register(newCoreMetrics(c.Stats)); err != nil {
		return nil, fmt.Errorf("register metrics of the core: %w", err)
	}
	lc.Append(fx.StopHook(c.Close))
	background(lc, failed, "core's clock", func(ctx context.Context) error { return tick(ctx, c) })
	return c, nil
}

// tickEvery is how late what time alone brings about may be: reservations and
// sessions that end, and requests that go on because a prefill should be done.
const tickEvery = 100 * time.Millisecond

// tick is the core's clock, until ctx ends. Reservations that expire are counted
// as those that end in any other way.
func tick(ctx context.Context, c *core.SelectionCore) error {
	every := time.NewTicker(tickEvery)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-every.C:
			c.Tick(now)
		}
	}
}

// coreConfig is what the configuration says of the core.
func coreConfig(cfg *config.Config) core.Config {
	cc := core.DefaultConfig()
	cc.TurnLimit = max(cfg.Plugins.PoolWait.Std()+cfg.Plugins.CallDeadline.Std(), 1)
	if seed := cfg.Routing.Seed; seed != 0 {
		cc.Seed = &seed
	}
	cc.Queue, cc.Overload = cfg.Queue.Core(), cfg.Queue.Overload.Core()
	cc.Expiry, cc.Pending = cfg.Selection.Expiry.Std(), cfg.Selection.Pending()
	cc.Affinity, cc.Estimator = cfg.Affinity.Core(), cfg.Routing.Load.Core()
	return cc
}

// followCore has what the core can change while it runs follow the configuration.
func followCore(r *reloads, c *core.SelectionCore) {
	keys := []string{"routing.seed", "plugins.call_deadline", "plugins.pool_wait", "queue.", "affinity.mode"}
	r.follow(settingsLast, part{keys: keys, prepare: func(_ context.Context, now *config.Config) (prepared, error) {
		cc := coreConfig(now)
		if err := cc.Validate(); err != nil {
			return prepared{}, err
		}
		return prepared{publish: func() error { return c.Configure(cc) }}, nil
	}})
}
