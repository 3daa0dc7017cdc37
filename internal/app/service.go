package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"syscall"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/fx"

	"github.com/routerd/routerd/admin"
	"github.com/routerd/routerd/catalog"
	"github.com/routerd/routerd/catalog/api"
	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/internal/config"
	"github.com/routerd/routerd/selection"
)

// serviceModule is the selection service, off unless it has an address. It stops
// before the frontend drains: nobody is told of a worker by a router that ends.
func serviceModule(cfg *config.Config) fx.Option {
	if cfg.Selection.Listen == "" {
		return fx.Options()
	}
	return fx.Module("selection service", fx.Provide(newService), fx.Invoke(followService, serveService))
}

func newService(l *live, c *core.SelectionCore, workers *catalog.Reconciler, source *api.Source, index indexes, log *slog.Logger, reg prometheus.Registerer) (*selection.Server, error) {
	sc, err := serviceConfig(l.Load())
	if err != nil {
		return nil, err
	}
	return selection.New(sc, selection.Parts{Core: c, Workers: selectionWorkers{workers, source}, Index: index}, log.With("component", "selection"), reg)
}

// serviceConfig is what the configuration says of the selection service, with the
// token as its file has it now.
func serviceConfig(cfg *config.Config) (selection.Config, error) {
	s := cfg.Selection
	sc := selection.Config{MaxBody: int64(s.MaxBody), HalfClose: s.HalfClose, PolicyHeaders: cfg.Plugins.Headers}
	var err error
	if sc.Token, err = ownToken("selection.token_file", s.TokenFile); err != nil {
		return sc, err
	}
	return sc, sc.Validate()
}

// followService has the service follow the configuration, and its token the file.
func followService(r *reloads, s *selection.Server) {
	r.follow(settingsLast, part{prepare: func(_ context.Context, now *config.Config) (prepared, error) {
		sc, err := serviceConfig(now)
		if err != nil {
			return prepared{}, &admin.ReloadError{Code: admin.CodeInvalid, Step: admin.ReloadPrepare, Problems: []admin.ReloadProblem{
				{Key: "selection.token_file", Text: err.Error()},
			}}
		}
		return prepared{publish: func() error { return s.Configure(sc) }}, nil
	}})
}

// serveService opens the listener at start and ends its calls at stop.
func serveService(lc fx.Lifecycle, cfg config.Config, s *selection.Server, addr *addresses, failed failures) {
	served := make(chan struct{})
	lc.Append(fx.Hook{
		OnStart: func(ctx context.Context) error {
			ln, err := listenOrSocket(ctx, "selection.listen", cfg.Selection.Listen)
			if err != nil {
				return err
			}
			addr.selection = addressOf(ln, cfg.Selection.Listen)
			go func() {
				defer close(served)
				if err := s.Serve(ln); err != nil {
					failed.report(fmt.Errorf("selection service: %w", err))
				}
			}()
			return nil
		},
		OnStop: func(ctx context.Context) error {
			err := s.Shutdown(ctx)
			<-served
			return err
		},
	})
}

// listenOrSocket is listen where a Unix socket will do. A socket that a process
// left behind, which nobody listens at any more, is replaced.
func listenOrSocket(ctx context.Context, key, address string) (net.Listener, error) {
	path, unix := config.SocketPath(address)
	if !unix {
		return listen(ctx, key, address)
	}
	ln, err := (&net.ListenConfig{}).Listen(ctx, "unix", path)
	if err != nil && abandoned(ctx, path) {
		if err = os.Remove(path); err == nil {
			ln, err = (&net.ListenConfig{}).Listen(ctx, "unix", path)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("--%s %s: %w", key, address, err)
	}
	if err := os.Chmod(path, socketMode); err != nil {
		return nil, errors.Join(fmt.Errorf("--%s %s: %w", key, address, err), ln.Close())
	}
	return ln, nil
}

// socketMode lets the owner and the group connect.
const socketMode = 0o660

// abandoned tells whether a path is a socket that nobody listens at.
func abandoned(ctx context.Context, path string) bool {
	info, err := os.Lstat(path)
	if err != nil || info.Mode().Type() != fs.ModeSocket {
		return false
	}
	c, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
	if err == nil {
		_ = c.Close() // somebody is there
		return false
	}
	return errors.Is(err, syscall.ECONNREFUSED) // else it may be busy, or not ours
}
