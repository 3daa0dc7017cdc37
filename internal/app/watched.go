package app

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/fx"

	"github.com/routerd/routerd/catalog"
	"github.com/routerd/routerd/catalog/health"
	"github.com/routerd/routerd/catalog/scrape"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/frontend"
	"github.com/routerd/routerd/ingress/zmq"
	"github.com/routerd/routerd/internal/config"
	"github.com/routerd/routerd/upstream"
)

// watchModule finds out how well the workers are and how loaded.
func watchModule() fx.Option {
	return fx.Module("watch", fx.Provide(newRoster, newMonitor, newScraper), fx.Invoke(followWatch))
}

func newMonitor(lc fx.Lifecycle, cfg config.Config, r *roster, log *slog.Logger, reg prometheus.Registerer, failed failures) (*health.Monitor, error) {
	m := health.New(cfg.Workers.HealthCheck, r, log.With("component", "health"))
	if err := m.Register(reg); err != nil {
		return nil, fmt.Errorf("register metrics of health: %w", err)
	}
	background(lc, failed, "health checks", m.Run)
	return m, nil
}

// newScraper asks engines for their load, and listens to those that tell it unasked.
func newScraper(lc fx.Lifecycle, cfg config.Config, conns zmq.Config, r *roster, log *slog.Logger, reg prometheus.Registerer, failed failures) (*scrape.Scraper, error) {
	s := scrape.New(cfg.Workers.Scrape, r, log.With("component", "scrape"))
	if err := s.Register(reg); err != nil {
		return nil, fmt.Errorf("register metrics of engines' load: %w", err)
	}
	sockets, err := zmq.NewLoadListener(conns, func(w fleet.Worker, l zmq.Load) {
		s.Pushed(w, scrape.Push{At: l.At, Running: l.Running, Queued: l.Waiting, Tokens: l.Tokens, MaxTokens: l.MaxTokens})
	}, log.With("component", "ingress"), reg)
	if err != nil {
		return nil, err
	}
	s.UseSockets(sockets, func(v catalog.View) map[int]string { return v.LoadReports })
	s.OnAdapters(r.Reconsider)
	background(lc, failed, "load sockets", sockets.Run)
	background(lc, failed, "engines' load", s.Run)
	return s, nil
}

// followWatch has health and load follow the configuration.
func followWatch(r *reloads, m *health.Monitor, s *scrape.Scraper) {
	r.follow(settingsLast, part{keys: []string{"workers.health_check.", "workers.scrape."}, prepare: func(_ context.Context, now *config.Config) (prepared, error) {
		return settled(func() {
			m.Configure(now.Workers.HealthCheck)
			s.Configure(now.Workers.Scrape)
		}), nil
	}})
}

var _ frontend.Outcomes = (*health.Monitor)(nil)

// tellBreakers has health hear of workers that are called no more for a while.
func tellBreakers(client *upstream.Client, r *roster, m *health.Monitor) {
	client.OnBreaker(func(worker string, open bool, reason string) {
		if id, ok := r.atURL(worker); ok {
			m.Breaker(id, open, reason)
		}
	})
}
