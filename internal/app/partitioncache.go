package app

import (
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/indexer"
	"github.com/routerd/routerd/indexer/approx"
	"github.com/routerd/routerd/indexer/audit"
	"github.com/routerd/routerd/indexer/exact"
	"github.com/routerd/routerd/indexer/predicted"
	"github.com/routerd/routerd/ingress/zmq"
	"github.com/routerd/routerd/internal/config"
	"github.com/routerd/routerd/kvcache"
)

// partitionCache is one partition's index, with what its streams say of themselves.
//
// What engines tell is in the index of events, and in that of predictions, where there is one, what the router decided
// and they have not told yet. Prompts of which engines never tell, those that are known by their text and, with
// index.kind approx, all of them, are in an index of decisions. It is made when the first one is booked.
type partitionCache struct {
	indexer.Indexer // of events and predictions
	events          *exact.Index
	predictions     *predicted.Index // nil where only events count
	decisions       atomic.Pointer[approx.Index]

	blockSize int
	cfg       *config.Index
	trusted   sync.Map // fleet.Worker → bool
	foreign   sync.Map // fleet.Worker → int, the size of the blocks that were left out for it, in tokens
	log       *slog.Logger
	audit     *audit.Audit
	overlaps  sync.Pool // of *[]kvcache.Overlap

	making sync.Mutex // of decisions, and guards closed
	closed bool
}

var (
	_ core.KvIndex = (*partitionCache)(nil)
	_ zmq.Sink     = (*partitionCache)(nil)
)

func newPartitionCache(key fleet.PartitionKey, blockSize int, cfg *config.Index, log *slog.Logger) (*partitionCache, error) {
	events := exact.NewCapped(blockSize, int64(cfg.MaxBytes))
	p := &partitionCache{Indexer: events, events: events, blockSize: blockSize, cfg: cfg, log: log.With("partition", key.String())}
	if cfg.PredictedTTL > 0 && cfg.Kind == config.IndexExact {
		var err error
		if p.predictions, err = predicted.New(events, approx.Config{TTL: cfg.PredictedTTL.Std(), MaxBytes: int(cfg.Decisions.MaxBytes)}); err != nil {
			return nil, fmt.Errorf("index.predicted_ttl: %w", err)
		}
		p.Indexer = p.predictions
	}
	p.audit = audit.New(events, func(w fleet.Worker, mismatch bool) {
		log := p.log.With("worker", w.String())
		if mismatch {
			log.Error("an engine stores other blocks than those of its prompts: its index is not trusted", "reason", hashMismatch)
		} else {
			log.Info("an engine stores the blocks of its prompts again")
		}
	})
	return p, nil
}

// Find tells of each worker the most that its events or decisions have.
func (p *partitionCache) Find(blocks []kvcache.BlockHash, workers []fleet.Worker, out []kvcache.Overlap) {
	p.Indexer.Find(blocks, workers, out)
	decisions := p.decisions.Load()
	if decisions == nil {
		return
	}
	own, _ := p.overlaps.Get().(*[]kvcache.Overlap)
	if own == nil {
		own = new([]kvcache.Overlap)
	}
	for len(*own) < len(workers) {
		*own = append(*own, kvcache.Overlap{})
	}
	decisions.Find(blocks, workers, *own)
	for i := range workers {
		// One kind of block is never of the other kind: who is in both has it from one of them.
		if o := (*own)[i]; o.Device > out[i].Device+out[i].Host+out[i].Disk+out[i].Shared {
			out[i] = o
		}
	}
	p.overlaps.Put(own)
}

// Apply applies events of a rank.
func (p *partitionCache) Apply(w fleet.Worker, events []kvcache.Event) kvcache.Applied {
	applied := p.Indexer.Apply(w, events)
	if applied.Stored > 0 {
		p.audit.Stored(w, time.Now())
	}
	if applied.Cleared > 0 {
		p.clearDecisions(w)
	}
	if applied.Drops[kvcache.DropBlockSizeMismatch] > 0 {
		p.leftOut(w, events)
	}
	return applied
}

// leftOut notes of what size the blocks are that were left out for it. The largest: an engine may store shorter ones too.
func (p *partitionCache) leftOut(w fleet.Worker, events []kvcache.Event) {
	size := 0
	for i := range events {
		if n := events[i].BlockSize; n != p.blockSize {
			size = max(size, n)
		}
	}
	if before, known := p.foreign.Swap(w, size); !known || before != size {
		p.log.Error("an engine stores blocks of another size: they are left out", "worker", w.String(), "stored", size, "block_size", p.blockSize)
	}
}

// State takes over whether a stream can be trusted.
func (p *partitionCache) State(w fleet.Worker, s zmq.Status) { p.trusted.Store(w, s.Trusted) }

// Trusted tells whether the rank's stream lost nothing and its blocks are those that are asked for.
func (p *partitionCache) Trusted(w fleet.Worker) bool {
	v, ok := p.trusted.Load(w)
	return ok && v == true && !p.audit.Mismatch(w)
}

// Record has the indexes learn of a booking. What engines will tell of is predicted, and the audit looks out for it.
func (p *partitionCache) Record(w fleet.Worker, blocks []kvcache.BlockHash, exact bool) {
	if !exact || p.cfg.Kind == config.IndexApprox {
		if decisions := p.makeDecisions(); decisions != nil {
			decisions.Record(w, blocks)
		}
		return
	}
	if p.predictions != nil {
		p.predictions.Record(w, blocks)
	}
	p.audit.Given(w, blocks, time.Now())
}

// makeDecisions returns the index of decisions, made if there is none; nil after close.
func (p *partitionCache) makeDecisions() *approx.Index {
	if x := p.decisions.Load(); x != nil {
		return x
	}
	p.making.Lock()
	defer p.making.Unlock()
	if x := p.decisions.Load(); x != nil || p.closed {
		return x
	}
	d := &p.cfg.Decisions
	x, err := approx.New(approx.Config{TTL: d.TTL.Std(), MaxBlocks: d.MaxBlocks, MaxBytes: int(d.MaxBytes)})
	if err != nil {
		return nil // the configuration allows no such limits
	}
	p.decisions.Store(x)
	return x
}

// Forget voids what was recorded for a rank that has left, and ends its audit.
func (p *partitionCache) Forget(w fleet.Worker) {
	p.clearDecisions(w)
	if p.predictions != nil {
		p.predictions.Forget(w)
	}
	p.audit.Forget(w)
	p.foreign.Delete(w)
}

// Clear drops what the engine had before it started anew.
func (p *partitionCache) Clear(w fleet.Worker) {
	p.Indexer.Clear(w)
	p.clearDecisions(w)
}

// clearDecisions drops what only decisions tell of.
func (p *partitionCache) clearDecisions(w fleet.Worker) {
	if x := p.decisions.Load(); x != nil {
		x.Clear(w)
	}
}

// counts is how many blocks a rank has by tier, those included that only decisions tell of.
func (p *partitionCache) counts(w fleet.Worker) kvcache.TierCounts {
	out := p.Blocks(w)
	if x := p.decisions.Load(); x != nil {
		out[kvcache.Device] += x.Blocks(w)[kvcache.Device]
	}
	return out
}

// bytes is the memory of all of it.
func (p *partitionCache) bytes() int64 {
	total := p.events.Bytes()
	if p.predictions != nil {
		total += int64(p.predictions.Bytes())
	}
	if x := p.decisions.Load(); x != nil {
		total += int64(x.Bytes())
	}
	return total
}

// close ends what runs for the partition.
func (p *partitionCache) close() {
	p.making.Lock()
	p.closed = true
	p.making.Unlock()
	if p.predictions != nil {
		p.predictions.Close()
	}
	if x := p.decisions.Load(); x != nil {
		x.Close()
	}
}
