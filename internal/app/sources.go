package app

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/fx"

	"github.com/routerd/routerd/catalog"
	"github.com/routerd/routerd/catalog/api"
	"github.com/routerd/routerd/catalog/dns"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/internal/config"
)

// staticWorkers are the workers of the configuration in force, as a source. A reload
// changes them itself; here they are compared from time to time.
type staticWorkers struct {
	live     *live
	reloaded chan struct{} // size 1: a full one already has the list compared
}

var _ catalog.Source = (*staticWorkers)(nil)

func newStaticWorkers(l *live) *staticWorkers {
	return &staticWorkers{live: l, reloaded: make(chan struct{}, 1)}
}

// changed tells that a reload has changed the list.
func (s *staticWorkers) changed() {
	select {
	case s.reloaded <- struct{}{}:
	default:
	}
}

// Name is the source's name.
func (*staticWorkers) Name() string { return fileSource }

// Watch hands the list over, at once and after each reload that changes it.
func (s *staticWorkers) Watch(ctx context.Context, give func([]fleet.Record) error) error {
	for {
		_ = give(s.live.Load().Workers.Static) // a refusal shows in the source's status
		select {
		case <-s.reloaded:
		case <-ctx.Done():
			return nil
		}
	}
}

// List gives the list of the configuration in force.
func (s *staticWorkers) List(context.Context) ([]fleet.Record, error) {
	return s.live.Load().Workers.Static, nil
}

func newSources(r *catalog.Reconciler, log *slog.Logger, reg prometheus.Registerer) (*catalog.Sources, error) {
	s := catalog.NewSources(r, log.With("component", "catalog"))
	if err := s.Register(reg); err != nil {
		return nil, fmt.Errorf("register metrics of sources: %w", err)
	}
	return s, nil
}

// followSources follows every source of workers while the router runs.
func followSources(lc fx.Lifecycle, cfg config.Config, static *staticWorkers, stored *api.Source, s *catalog.Sources, failed failures) {
	all := []catalog.Source{static, stored}
	for _, c := range cfg.Workers.DNS {
		all = append(all, dns.New(c, dns.NewResolver(c.Server)))
	}
	how := catalog.DefaultFollowConfig()
	how.Resync = cfg.Workers.Resync.Std()
	for _, src := range all {
		background(lc, failed, "workers of "+src.Name(), func(ctx context.Context) error { return s.Follow(ctx, src, how) })
	}
}
