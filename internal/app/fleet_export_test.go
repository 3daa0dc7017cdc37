package app

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/routerd/routerd/admin"
	"github.com/routerd/routerd/catalog"
	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/ingress/zmq"
	"github.com/routerd/routerd/internal/config"
	"github.com/routerd/routerd/internal/testkit"
	"github.com/routerd/routerd/kvcache"
)

// IsPod is isPod.
var IsPod = isPod

// OfBlocks is ofBlocks.
var OfBlocks = ofBlocks

// Fleet is a real core with real indexes, event streams and a real reconciler; no
// surface, no health and no engine's facts but those that a test gives.
type Fleet struct {
	Core       *core.SelectionCore
	Reconciler *catalog.Reconciler

	// Commits, Upserts, Listens and Unlistens count what the reconciler told the others:
	// changes, records and ranks.
	Commits, Upserts, Listens, Unlistens atomic.Int64

	caches *caches
	Log    testkit.Log
	Reg    *prometheus.Registry
}

// FleetParts are what a test gives; Engines must be there.
type FleetParts struct {
	Policies core.SelectionPolicySource
	Engines  catalog.Engines
	Health   catalog.Health
	Index    config.Index
}

// NewFleet makes a fleet without workers.
func NewFleet(parts FleetParts, cfg core.Config) (*Fleet, error) {
	in, err := zmq.New(zmq.DefaultConfig(), slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	if err != nil {
		return nil, err
	}
	f := &Fleet{Reg: prometheus.NewRegistry()}
	if f.caches, err = newCaches(in, config.Config{Index: parts.Index}, slog.New(slog.NewTextHandler(&f.Log, nil)), f.Reg); err != nil {
		return nil, err
	}
	f.Core = core.New(cfg, core.SelectionHost{}, parts.Policies, f.caches, slog.New(slog.DiscardHandler))
	f.Reconciler = catalog.New(catalog.Parts{
		Core: countedCore{f}, Listeners: countedListeners{f}, Engines: parts.Engines, Health: parts.Health,
	}, slog.New(slog.DiscardHandler))
	return f, nil
}

// Close ends what the index has running.
func (f *Fleet) Close() { f.caches.close() }

// Decided is a partition's index by what it does with decisions.
type Decided struct{ of *partitionCache }

// NewDecided makes one.
func NewDecided(cfg config.Index, blockSize int) Decided {
	p, err := newPartitionCache(fleet.PartitionKey{}, blockSize, &cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		panic(err) // the configuration would not have been read
	}
	return Decided{p}
}

func (d Decided) Find(blocks []kvcache.BlockHash, workers []fleet.Worker, out []kvcache.Overlap) {
	d.of.Find(blocks, workers, out)
}

func (d Decided) Record(w fleet.Worker, blocks []kvcache.BlockHash) { d.of.Record(w, blocks, true) }

func (d Decided) Forget(w fleet.Worker) { d.of.Forget(w) }

func (d Decided) Clear(w fleet.Worker) { d.of.Clear(w) }

func (d Decided) Remove(w fleet.Worker) { d.of.Forget(w) }

func (d Decided) Blocks(w fleet.Worker) kvcache.TierCounts { return d.of.counts(w) }

func (d Decided) Close() { d.of.close() }

// Run runs the reconciler and, with streams, the event streams.
func (f *Fleet) Run(ctx context.Context, streams bool) error {
	var all sync.WaitGroup
	defer all.Wait()
	if streams {
		all.Go(func() { _ = f.caches.ingress.Run(ctx) })
	}
	return f.Reconciler.Run(ctx)
}

// Stream is how one rank's event stream stands.
func (f *Fleet) Stream(w fleet.Worker) (zmq.Status, bool) { return f.caches.ingress.Status(w) }

// Cache is what the core asks of a partition's index, and what its streams feed.
func (f *Fleet) Cache(key fleet.PartitionKey) interface {
	core.KvIndex
	zmq.Sink
} {
	return f.caches.part(key)
}

// Status is how a rank's cache stands.
func (f *Fleet) Status(key fleet.PartitionKey, w fleet.Worker) admin.KV {
	return f.caches.Status(key, w, false)
}

// Blocks is how many blocks the index has of a rank, on the device.
func (f *Fleet) Blocks(key fleet.PartitionKey, w fleet.Worker) int {
	p := f.caches.part(key)
	if p == nil {
		return 0
	}
	return p.Blocks(w)[kvcache.Device]
}

type countedCore struct{ *Fleet }

func (c countedCore) Prepare(ctx context.Context, key fleet.PartitionKey, blockSize int) error {
	return c.Core.Prepare(ctx, key, blockSize)
}

func (c countedCore) Commit(ch core.Change) error {
	c.Commits.Add(1)
	c.Upserts.Add(int64(len(ch.Upserts)))
	return c.Core.Commit(ch)
}

type countedListeners struct{ *Fleet }

func (c countedListeners) Listen(l catalog.Listening, record func() *fleet.Record) error {
	c.Listens.Add(1)
	return c.caches.Listen(l, record)
}

func (c countedListeners) Unlisten(key fleet.PartitionKey, ranks ...fleet.Worker) {
	c.Unlistens.Add(int64(len(ranks)))
	c.caches.Unlisten(key, ranks...)
}

// Roster is what health and load see of the workers.
type Roster struct{ *roster }

// NewRoster makes one without a reconciler.
func NewRoster() Roster { return Roster{newRoster()} }

// Is gives it the reconciler.
func (r Roster) Is(rec *catalog.Reconciler) { r.is(rec) }
