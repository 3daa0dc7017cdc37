package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/fx"

	"github.com/routerd/routerd/catalog/health"
	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/frontend"
	"github.com/routerd/routerd/internal/config"
	"github.com/routerd/routerd/prompt"
	"github.com/routerd/routerd/upstream"
)

// proxyModule is the OpenAI-compatible frontend and its client to workers.
func proxyModule() fx.Option {
	return fx.Module("proxy", fx.Provide(newUpstream, newTokenizer, newFrontend), fx.Invoke(tellBreakers, followFrontend, serveFrontend))
}

func newUpstream(lc fx.Lifecycle, cfg config.Config, reg prometheus.Registerer, failed failures, opened *closers) (*upstream.Client, error) {
	uc := upstream.DefaultConfig()
	uc.FirstByteTimeout, uc.Breaker = cfg.Frontend.FirstByteTimeout.Std(), cfg.Frontend.Breaker
	if err := uc.Validate(); err != nil {
		return nil, err
	}
	c := upstream.New(uc)
	if err := c.Register(reg); err != nil {
		return nil, err
	}
	opened.add(func() error { c.Close(); return nil })
	background(lc, failed, "idle connection sweep", c.Run)
	return c, nil
}

func newTokenizer(c *core.SelectionCore, client *upstream.Client, reg prometheus.Registerer, opened *closers) (*prompt.Tokenizer, error) {
	t, err := prompt.New(prompt.DefaultConfig(), c, client, reg)
	if err != nil {
		return nil, err
	}
	opened.add(func() error { t.Close(); return nil })
	return t, nil
}

func newFrontend(
	l *live, c *core.SelectionCore, t *prompt.Tokenizer, client *upstream.Client, monitor *health.Monitor, log *slog.Logger, reg prometheus.Registerer,
) (*frontend.Server, error) {
	modeOf := func(model string) prompt.Mode {
		m, ok := l.Load().Models[model]
		if !ok {
			m = config.DefaultModel()
		}
		return prompt.Mode(m.Tokenize)
	}
	s, err := frontend.New(frontendConfig(l.Load()), c, t, client, modeOf, log.With("component", "frontend"), reg)
	if err == nil {
		s.ReportTo(monitor)
	}
	return s, err
}

// frontendConfig is what the configuration says of the frontend.
func frontendConfig(cfg *config.Config) frontend.Config {
	f := cfg.Frontend
	return frontend.Config{
		MaxBody: int64(f.MaxBody), Grace: f.Grace.Std(), ForwardedFor: f.ForwardedFor,
		Retries: f.Retries, HalfClose: f.HalfClose, TrustHeaders: f.TrustHeaders, PolicyHeaders: cfg.Plugins.Headers,
	}
}

// followFrontend has the frontend and its client to workers follow the
// configuration.
func followFrontend(r *reloads, s *frontend.Server, client *upstream.Client) {
	r.follow(settingsLast, part{keys: []string{"frontend.", "plugins.headers"}, prepare: func(_ context.Context, now *config.Config) (prepared, error) {
		fc := frontendConfig(now)
		if err := fc.Validate(); err != nil {
			return prepared{}, fmt.Errorf("frontend: %w", err)
		}
		return prepared{publish: func() error {
			client.SetFirstByteTimeout(now.Frontend.FirstByteTimeout.Std())
			return errors.Join(client.Configure(now.Frontend.Breaker), s.Configure(fc))
		}}, nil
	}})
}

// serveFrontend opens the listener at start; at stop it lets requests end for
// the grace.
func serveFrontend(lc fx.Lifecycle, cfg config.Config, s *frontend.Server, addr *addresses, ready *readiness, failed failures) {
	served := make(chan struct{})
	lc.Append(fx.Hook{
		OnStart: func(ctx context.Context) error {
			ln, err := listen(ctx, "frontend.listen", cfg.Frontend.Listen)
			if err != nil {
				return err
			}
			addr.frontend = ln.Addr().String()
			go func() {
				defer close(served)
				if err := s.Serve(ln); err != nil {
					failed.report(fmt.Errorf("frontend: %w", err))
				}
			}()
			ready.set("")
			return nil
		},
		OnStop: func(ctx context.Context) error {
			ready.set("draining")
			err := s.Drain(ctx)
			<-served
			if errors.Is(err, frontend.ErrGrace) {
				addr.drained = ErrGrace
				return nil
			}
			return err
		},
	})
}

// listen opens a listener; the error names the key that set the address.
func listen(ctx context.Context, key, address string) (net.Listener, error) {
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("--%s %s: %w", key, address, err)
	}
	return ln, nil
}
