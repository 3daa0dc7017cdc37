package app

import (
	"context"
	"fmt"
	"log/slog"
	"net"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/fx"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/indexer/remote"
	"github.com/routerd/routerd/internal/apiserver"
	"github.com/routerd/routerd/internal/config"
	"github.com/routerd/routerd/kvcache"
)

// indexModule serves the index to other routers, off unless it has an address.
func indexModule(cfg *config.Config) fx.Option {
	if cfg.Index.Serve.Listen == "" {
		return fx.Options()
	}
	return fx.Module("index service", fx.Invoke(serveIndex))
}

// served is this router's index as others read it.
type served struct {
	caches *caches
	core   *core.SelectionCore
}

var _ remote.Partitions = served{}

// Partition finds a partition's index.
func (s served) Partition(key fleet.PartitionKey) (x remote.Index, blockSize int, ok bool) {
	p := s.caches.part(key)
	if p == nil {
		return nil, 0, false
	}
	return p, p.blockSize, true
}

// Record has the partition's index hear of what another router decided.
func (s served) Record(key fleet.PartitionKey, w fleet.Worker, blocks []kvcache.BlockHash, exact bool) bool {
	return s.core.Learn(key, w, blocks, exact)
}

// serveIndex opens the listener at start and closes it at stop.
func serveIndex(lc fx.Lifecycle, cfg config.Config, own *caches, c *core.SelectionCore, log *slog.Logger, reg prometheus.Registerer, addr *addresses, failed failures) error {
	token, err := ownToken("index.serve.token_file", cfg.Index.Serve.TokenFile)
	if err != nil {
		return err
	}
	index := remote.NewServer(served{own, c})
	if err := reg.Register(newServedMetrics(index.Stats)); err != nil {
		return fmt.Errorf("register metrics of the served index: %w", err)
	}
	s := newIndexServer(index, token, log.With("component", "index"))
	ended := make(chan struct{})
	lc.Append(fx.Hook{
		OnStart: func(ctx context.Context) error {
			ln, err := listenOrSocket(ctx, "index.serve.listen", cfg.Index.Serve.Listen)
			if err != nil {
				return err
			}
			addr.index = addressOf(ln, cfg.Index.Serve.Listen)
			go func() {
				defer close(ended)
				if err := s.Serve(ln); err != nil {
					failed.report(fmt.Errorf("index service: %w", err))
				}
			}()
			return nil
		},
		OnStop: func(ctx context.Context) error {
			err := s.Shutdown(ctx)
			<-ended
			return err
		},
	})
	return nil
}

func newIndexServer(index *remote.Server, token string, log *slog.Logger) *apiserver.Server {
	return apiserver.NewPosts(apiserver.PostsConfig{
		Posts:   []apiserver.Post{{Path: remote.PathFind, Handle: index.Find}, {Path: remote.PathRecord, Handle: index.Record}},
		MaxBody: remote.MaxMessage, Token: token, TokenKey: "index.serve.token_file", Realm: "routerd index",
	}, log)
}

// addressOf is where others reach a listener: the URL of its address, or else what is
// configured.
func addressOf(ln net.Listener, configured string) string {
	if tcp, ok := ln.Addr().(*net.TCPAddr); ok {
		return "http://" + tcp.String()
	}
	return configured
}
