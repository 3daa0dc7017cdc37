package app

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/fx"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/internal/config"
	"github.com/routerd/routerd/kvcache"
	"github.com/routerd/routerd/sharedcache"
	"github.com/routerd/routerd/upstream"
)

// sharedCaches is the shared cache that the configuration names, none at times.
// Safe for concurrent use.
type sharedCaches struct {
	poster sharedcache.Poster
	log    *slog.Logger
	reg    prometheus.Registerer

	now     atomic.Pointer[sharedClient] // nil for none
	changed chan struct{}                // size 1: a full one already wakes Run
}

// sharedClient is a client with its metrics, which go with it.
type sharedClient struct {
	*sharedcache.Client
	metrics *prometheus.Registry
}

var _ core.SharedCache = (*sharedCaches)(nil)

func newSharedCaches(lc fx.Lifecycle, cfg config.Config, client *upstream.Client, log *slog.Logger, reg prometheus.Registerer, failed failures) (*sharedCaches, error) {
	s := &sharedCaches{poster: client, log: log.With("component", "sharedcache"), reg: reg, changed: make(chan struct{}, 1)}
	first, err := s.client(&cfg)
	if err == nil {
		err = s.replace(first)
	}
	if err != nil {
		return nil, err
	}
	background(lc, failed, "shared cache", s.Run)
	return s, nil
}

// client makes the client that the configuration asks for, nil where that is
// none. Nothing is sent.
func (s *sharedCaches) client(cfg *config.Config) (*sharedClient, error) {
	sc, ok := cfg.SharedCache.Client()
	if !ok {
		return nil, nil //nolint:nilnil // none is no error
	}
	metrics := prometheus.NewRegistry()
	c, err := sharedcache.New(sc, s.poster, s.log, metrics)
	if err != nil {
		return nil, err
	}
	return &sharedClient{c, metrics}, nil
}

// replace puts another client in force; nil for none. Calls of the old one end
// by themselves, within its deadline.
func (s *sharedCaches) replace(next *sharedClient) error {
	if old := s.now.Load(); old != nil {
		s.reg.Unregister(old.metrics)
	}
	if next != nil {
		if err := s.reg.Register(next.metrics); err != nil {
			return fmt.Errorf("register metrics of the shared cache: %w", err)
		}
	}
	s.now.Store(next)
	select {
	case s.changed <- struct{}{}:
	default:
	}
	return nil
}

// Hits asks the shared cache that is in force, if there is one.
func (s *sharedCaches) Hits(ctx context.Context, key fleet.PartitionKey, blocks []kvcache.SequenceHash, out []kvcache.BlockRange) ([]kvcache.BlockRange, error) {
	c := s.now.Load()
	if c == nil {
		return out, core.ErrNoSharedCache
	}
	return c.Hits(ctx, key, blocks, out)
}

// Run lets the client in force look for a server that went away, until ctx ends.
func (s *sharedCaches) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		s.runOne(ctx)
	}
	return nil
}

// runOne does so until the client is replaced.
func (s *sharedCaches) runOne(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	c := s.now.Load()
	if c != nil {
		running.Go(func() { _ = c.Run(ctx) }) // always nil
	}
	for s.now.Load() == c { // a client is run once
		select {
		case <-s.changed:
		case <-ctx.Done():
			return
		}
	}
}

// followSharedCache has the shared cache follow the configuration.
func followSharedCache(r *reloads, s *sharedCaches) {
	r.follow(settingsLast, part{keys: []string{"shared_cache."}, prepare: func(_ context.Context, now *config.Config) (prepared, error) {
		next, err := s.client(now)
		if err != nil {
			return prepared{}, err
		}
		return prepared{publish: func() error { return s.replace(next) }}, nil
	}})
}
