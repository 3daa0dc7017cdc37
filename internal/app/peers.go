package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/fx"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/indexer/dump"
	"github.com/routerd/routerd/internal/config"
)

// A router that starts knows nothing of the engines' caches, and an engine tells
// only of what changes (and, where it replays, of the last while). So the start asks
// its peers for their index, before it listens to any engine, and takes the part of
// a rank over at the moment before it subscribes to that rank's events: those come on
// top, and a replay repeats what the peer knew. What the engine dropped between the
// peer's answer and the subscription stays until the engine stores or drops it again,
// unless it replays its events; kv.trusted tells of the stream alone.

const (
	// maxDump bounds what a peer may send, in bytes.
	maxDump = 1 << 30
	// warmFor is how long after the peer's answer a rank may still take its part over;
	// after that too much of it is old.
	warmFor = time.Minute
)

// warmth is what a peer knew and no rank has taken over yet. Safe for concurrent use.
type warmth struct {
	mu    sync.Mutex // guards all
	log   *slog.Logger
	parts map[string]*dump.Index // by partition
	end   *time.Timer            // drops parts, which may be large
}

func (w *warmth) fill(parts map[string]*dump.Index, log *slog.Logger) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.parts, w.log = parts, log
	w.end = time.AfterFunc(warmFor, w.drop)
}

// drop forgets what no rank has taken over.
func (w *warmth) drop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.parts = nil
	if w.end != nil {
		w.end.Stop()
	}
}

// take hands out a rank's part once. It is nil where the peer's blocks have another
// size.
func (w *warmth) take(key fleet.PartitionKey, rank fleet.Worker, blockSize int) (r *dump.Rank, log *slog.Logger) {
	w.mu.Lock()
	defer w.mu.Unlock()
	x := w.parts[key.String()]
	if x == nil || x.BlockSize != blockSize {
		return nil, nil
	}
	r = x.Ranks[rank]
	delete(x.Ranks, rank)
	return r, w.log
}

// restore has a rank take its part over. It reports false where there is none.
func (w *warmth) restore(p *partitionCache, key fleet.PartitionKey, rank fleet.Worker) bool {
	r, log := w.take(key, rank, p.blockSize)
	if r == nil {
		return false
	}
	lost := p.Restore(rank, r.Rest, slices.Values(r.Changes))
	log.Info("index taken over from a peer", "partition", key.String(), "worker", rank.String(), "lost_blocks", lost)
	return true
}

// askPeers has the start ask the peers for their index.
func askPeers(lc fx.Lifecycle, cfg config.Config, index *caches, log *slog.Logger) {
	if len(cfg.Index.Peers) == 0 {
		return
	}
	log = log.With("component", "peers")
	lc.Append(fx.StopHook(index.warm.drop))
	lc.Append(fx.StartHook(func(ctx context.Context) error {
		token, err := foreignToken("index.peer_token_file", cfg.Index.PeerTokenFile)
		if err != nil {
			return err
		}
		for _, peer := range cfg.Index.Peers {
			began := time.Now()
			parts, err := fetchDump(ctx, peer, token, cfg.Index.PeerTimeout.Std())
			if err == nil {
				index.warm.fill(parts, log)
				log.Info("a peer handed its index over", "peer", peer, "partitions", len(parts), "took", time.Since(began))
				return nil
			}
			log.Warn("a peer did not hand its index over", "peer", peer, "err", err)
		}
		return ctx.Err()
	}))
}

// fetchDump asks one peer.
func fetchDump(ctx context.Context, peer, token string, limit time.Duration) (map[string]*dump.Index, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	transport := &http.Transport{DisableKeepAlives: true}
	base := strings.TrimSuffix(peer, "/")
	if path, unix := config.SocketPath(peer); unix {
		base = "http://peer"
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/dump", http.NoBody)
	if err != nil {
		return nil, err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	client := &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error {
		return errors.New("it redirects") // the token is for this address
	}}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("it answered %s", resp.Status)
	}
	return dump.Read(resp.Body, maxDump)
}
