package app

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/fx"

	"github.com/routerd/routerd/admin"
	"github.com/routerd/routerd/catalog"
	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/indexer/dump"
	"github.com/routerd/routerd/indexer/remote"
	"github.com/routerd/routerd/internal/config"
	"github.com/routerd/routerd/kvcache"
	"github.com/routerd/routerd/upstream"
)

// newIndexes is the index of the kind that the configuration asks for.
func newIndexes(lc fx.Lifecycle, cfg config.Config, own *caches, client *upstream.Client, log *slog.Logger, reg prometheus.Registerer, failed failures) (indexes, error) {
	if cfg.Index.Kind != config.IndexRemote {
		return own, nil
	}
	r, err := newRemoteIndexes(cfg.Index.Remote, client, log.With("component", "index"), reg)
	if err != nil {
		return nil, err
	}
	background(lc, failed, "remote index", r.client.Run)
	return r, nil
}

// remoteIndexes are the partitions' indexes at the primary. It is safe for concurrent use.
type remoteIndexes struct {
	client  *remote.Client
	log     *slog.Logger
	ignored sync.Once // tells that KV events are not listened to

	mu    sync.Mutex // guards parts
	parts map[fleet.PartitionKey]*remote.Partition
}

var (
	_ indexes          = (*remoteIndexes)(nil)
	_ core.KvIndex     = (*remote.Partition)(nil)
	_ remote.Transport = primary{}
)

func newRemoteIndexes(cfg config.IndexRead, client *upstream.Client, log *slog.Logger, reg prometheus.Registerer) (*remoteIndexes, error) {
	to, err := newPrimary(cfg, client)
	if err != nil {
		return nil, err
	}
	seconds := prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "routerd_index_remote_find_seconds", Help: "Time to an answer of the primary of the index.",
		Buckets: prometheus.ExponentialBuckets(50e-6, 2, 15),
	})
	c, err := remote.New(remote.Config{Deadline: cfg.Deadline.Std()}, to, log, seconds.Observe)
	if err != nil {
		return nil, err
	}
	for _, m := range []prometheus.Collector{seconds, newRemoteMetrics(c.Stats)} {
		if err := reg.Register(m); err != nil {
			return nil, fmt.Errorf("register metrics of the remote index: %w", err)
		}
	}
	return &remoteIndexes{client: c, log: log, parts: map[fleet.PartitionKey]*remote.Partition{}}, nil
}

// primary is where the index is read, by the client that calls workers too.
type primary struct {
	client *upstream.Client
	at     upstream.Endpoint
	token  string
}

func newPrimary(cfg config.IndexRead, client *upstream.Client) (primary, error) {
	token, err := foreignToken("index.remote.token_file", cfg.TokenFile)
	if err != nil {
		return primary{}, err
	}
	parse, address := upstream.ParseEndpoint, cfg.URL
	if path, unix := config.SocketPath(cfg.URL); unix {
		parse, address = upstream.UnixEndpoint, path
	}
	at, err := parse(address)
	if err != nil {
		return primary{}, fmt.Errorf("index.remote.url: %w", err)
	}
	return primary{client, at, token}, nil
}

// Post sends a message to the primary.
func (p primary) Post(ctx context.Context, path string, body []byte) (status int, answer []byte, err error) {
	return p.client.PostBytes(ctx, p.at, path, p.token, body)
}

// Open returns the partition's index. It asks nobody.
func (r *remoteIndexes) Open(key fleet.PartitionKey, blockSize int) (core.KvIndex, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p := r.parts[key]; p != nil {
		return p, nil
	}
	p, err := r.client.Open(key, blockSize)
	if err != nil {
		return nil, err
	}
	r.parts[key] = p
	return p, nil
}

// Forget drops what the primary said of a partition that has had no worker for a while.
func (r *remoteIndexes) Forget(key fleet.PartitionKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.parts, key)
}

// Listen subscribes to nothing: the primary listens.
func (r *remoteIndexes) Listen(catalog.Listening, func() *fleet.Record) error {
	r.ignored.Do(func() {
		r.log.Info("kv_events of workers are not listened to: index.kind is remote")
	})
	return nil
}

// Unlisten has nothing to end: the core has the index forget ranks that leave.
func (r *remoteIndexes) Unlisten(fleet.PartitionKey, ...fleet.Worker) {}

// Status tells whether the primary trusts a rank. It knows of no blocks.
func (r *remoteIndexes) Status(key fleet.PartitionKey, w fleet.Worker, hashes bool) admin.KV {
	kv := admin.KV{Source: admin.KVRemote, Blocks: map[string]int{}, Dropped: map[string]uint64{}}
	for _, t := range kvcache.AllTiers() {
		kv.Blocks[t.String()] = 0
	}
	if hashes {
		kv.Hashes = map[string][]string{}
	}
	r.mu.Lock()
	p := r.parts[key]
	r.mu.Unlock()
	kv.Trusted = p != nil && p.Trusted(w)
	return kv
}

// Dump writes an index that has nothing: the primary hands its own out.
func (r *remoteIndexes) Dump(w io.Writer) error { return dump.Write(w, nil) }
