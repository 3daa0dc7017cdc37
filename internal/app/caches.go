package app

import (
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/fx"

	"github.com/routerd/routerd/admin"
	"github.com/routerd/routerd/catalog"
	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/host"
	"github.com/routerd/routerd/indexer/dump"
	"github.com/routerd/routerd/ingress/zmq"
	"github.com/routerd/routerd/internal/config"
	"github.com/routerd/routerd/kvcache"
	"github.com/routerd/routerd/selection"
)

// hashMismatch is why a rank is not trusted whose engine stores other blocks than those of its prompts; see package
// audit.
const hashMismatch = "hash_mismatch"

// indexes is what the router has of an index, of whichever kind.
type indexes interface {
	core.KvIndexSource
	core.Forgetter
	catalog.Listeners
	admin.KvStatus
	selection.Index
}

// caches joins the partitions' indexes, which the core asks, with the event
// streams that feed them. It is safe for concurrent use.
type caches struct {
	ingress *zmq.DirectIngress
	cfg     config.Index
	log     *slog.Logger
	warm    warmth
	kept    keeper
	ignored sync.Once // tells that KV events are not listened to

	mu      sync.Mutex // guards all below
	parts   map[fleet.PartitionKey]*partitionCache
	streams map[fleet.Worker]streaming
}

var (
	_ indexes        = (*caches)(nil)
	_ core.Forgetter = (*host.PolicySource)(nil)
	_ core.KvIndex   = (*partitionCache)(nil)
	_ zmq.Sink       = (*partitionCache)(nil)
)

func newCaches(ingress *zmq.DirectIngress, cfg config.Config, log *slog.Logger, reg prometheus.Registerer) (*caches, error) {
	c := &caches{ingress: ingress, cfg: cfg.Index, log: log.With("component", "index"), parts: map[fleet.PartitionKey]*partitionCache{}, streams: map[fleet.Worker]streaming{}}
	mismatches := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "routerd_index_hash_mismatch_ranks",
		Help: "Ranks whose engine stores other blocks than those of the prompts that it gets.",
	}, func() float64 { return float64(c.mismatches()) })
	for _, m := range []prometheus.Collector{mismatches, newIndexMetrics(c)} {
		if err := reg.Register(m); err != nil {
			return nil, fmt.Errorf("register metrics of the index: %w", err)
		}
	}
	return c, nil
}

// Open returns the partition's index; it stays when the partition is empty, until that
// is forgotten.
func (c *caches) Open(key fleet.PartitionKey, blockSize int) (core.KvIndex, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.parts[key]; p != nil {
		return p, nil
	}
	p, err := newPartitionCache(key, blockSize, &c.cfg, c.log)
	if err != nil {
		return nil, err
	}
	c.parts[key] = p
	return p, nil
}

// mismatches is how many ranks store other blocks than those of their prompts.
func (c *caches) mismatches() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.parts {
		n += p.audit.Mismatches()
	}
	return n
}

// Forget drops the index of a partition that has had no worker for a while.
func (c *caches) Forget(key fleet.PartitionKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.parts[key]; p != nil {
		p.close()
	}
	delete(c.parts, key)
}

// closeIndexes ends at stop what the indexes have running.
func closeIndexes(lc fx.Lifecycle, index *caches) { lc.Append(fx.StopHook(index.close)) }

// close ends what the indexes have running.
func (c *caches) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.parts {
		p.close()
	}
}

func (c *caches) part(key fleet.PartitionKey) *partitionCache {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.parts[key]
}

// Dump writes the index of every partition.
func (c *caches) Dump(w io.Writer) error {
	c.mu.Lock()
	parts := make([]dump.Partition, 0, len(c.parts))
	for key, p := range c.parts {
		parts = append(parts, dump.Partition{Key: key, BlockSize: p.blockSize, Index: p})
	}
	c.mu.Unlock()
	slices.SortFunc(parts, func(a, b dump.Partition) int { return strings.Compare(a.Key.String(), b.Key.String()) })
	return dump.Write(w, parts)
}

// Listen subscribes to one rank's events.
func (c *caches) Listen(l catalog.Listening, record func() *fleet.Record) error {
	p := c.part(l.Partition)
	if p == nil {
		return fmt.Errorf("partition %s has no index", l.Partition)
	}
	if c.cfg.Kind == config.IndexApprox {
		c.ignored.Do(func() { c.log.Info("kv_events of workers are not listened to: index.kind is approx") })
		return nil
	}
	from := c.takeOver(p, &l, record())
	err := c.ingress.Register(zmq.Source{
		Worker: l.Worker, Name: record().Name, Engine: l.Engine, Endpoint: l.Endpoint, Replay: l.Replay, Sink: p, From: from,
		Owns:  func(rank uint32) bool { return record().Owns(rank) },
		IsPod: func(pod string) bool { return isPod(record(), pod) },
		AdapterName: func(id int64) (string, bool) {
			for _, a := range record().Adapters {
				if a.ID == id && id != 0 {
					return a.Name, true
				}
			}
			return "", false
		},
	})
	if err != nil {
		c.giveBack(p, l.Worker, from)
		return err
	}
	c.mu.Lock()
	c.streams[l.Worker] = streaming{l, p}
	c.mu.Unlock()
	if from != nil {
		c.kept.drop(&l)
	}
	return nil
}

// isPod tells whether an engine that calls itself pod is the worker: by its name, or by the host and port of its URL.
func isPod(r *fleet.Record, pod string) bool {
	at, _, _ := strings.Cut(strings.TrimPrefix(r.URL, "http://"), "/")
	return pod != "" && (pod == r.Name || pod == at)
}

// Unlisten ends the subscriptions, then forgets the ranks, and those of which only these streams told.
func (c *caches) Unlisten(key fleet.PartitionKey, ranks ...fleet.Worker) {
	others := c.ingress.Unregister(ranks...)
	c.mu.Lock()
	for _, w := range ranks {
		delete(c.streams, w)
	}
	c.mu.Unlock()
	p := c.part(key)
	if p == nil {
		return
	}
	for _, w := range slices.Concat(ranks, others) {
		p.Remove(w)
		p.trusted.Delete(w)
	}
}

// source is where the indexes come from.
func (c *caches) source() string {
	if c.cfg.Kind == config.IndexApprox {
		return admin.KVFromDecisions
	}
	return admin.KVFromEvents
}

// Status tells how a rank's cache stands.
func (c *caches) Status(key fleet.PartitionKey, w fleet.Worker, hashes bool) admin.KV {
	kv := admin.KV{Source: c.source(), Blocks: map[string]int{}, Dropped: map[string]uint64{}}
	for _, t := range kvcache.AllTiers() {
		kv.Blocks[t.String()] = 0
	}
	if st, ok := c.ingress.Status(w); ok {
		kv.Trusted, kv.Unconnected, kv.Fault, kv.LastSeq, kv.LastAt, kv.Dropped = st.Trusted, st.Unconnected, st.Fault, st.LastSeq, st.LastEventAt, st.Dropped
		kv.Untrusted = st.Reason
		if !st.Trusted && st.Reason == "" {
			kv.Untrusted = st.State.String() // nothing is lost, and not all is there yet
		}
	}
	p := c.part(key)
	if p == nil {
		return kv
	}
	if p.audit.Mismatch(w) {
		kv.Trusted, kv.Untrusted = false, hashMismatch
	}
	if size, ok := p.foreign.Load(w); ok {
		kv.LeftOut = size.(int)
	}
	for t, n := range p.counts(w) {
		kv.Blocks[kvcache.Tier(t).String()] = n
	}
	if hashes {
		kv.Hashes = map[string][]string{}
		for t, hs := range p.Hashes(w) {
			for _, h := range hs {
				kv.Hashes[t.String()] = append(kv.Hashes[t.String()], h.String())
			}
		}
	}
	return kv
}
