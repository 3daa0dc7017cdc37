package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/fx"

	"github.com/routerd/routerd/catalog"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/indexer"
	"github.com/routerd/routerd/indexer/disk"
	"github.com/routerd/routerd/ingress/zmq"
	"github.com/routerd/routerd/internal/config"
	"github.com/routerd/routerd/internal/durable"
)

// The index survives a restart in a file of data_dir, written at each stop and now and
// then. A rank gets its part back at the moment before its events are listened to, and
// its stream goes on from where it stood: as after a reconnect, the engine has to prove
// that it is the one from before. One that is not, or that no longer has the message at
// which the file was written, has its part dropped and is replayed from the beginning;
// one that replays nothing has its part counted but not trusted. So no age makes a file
// too old.
//
// Beside it stands what a peer knew (see peers.go), which is as of now but proves
// nothing. Where the engine replays, the file goes first, and the peer's part is taken
// where the file has none; where it does not, the peer has listened on and goes first.

const (
	// keptFile is the file's name in data_dir.
	keptFile = "index"
	// keptFor is how long after the start a rank may still take its part over. Until then
	// what no rank has taken is written again.
	keptFor = time.Hour
	// keepWithin is what writing may take at a stop: other parts have to stop too.
	keepWithin = stopTimeout / 2
)

// keptKey is whose a part is.
type keptKey struct {
	fleet.PartitionKey
	fleet.Worker
}

// keeper has the index on disk. One that was not opened has nothing. Safe for concurrent
// use.
type keeper struct {
	file    string
	log     *slog.Logger
	metrics *keepMetrics

	mu    sync.Mutex // guards all below; held while the file is read
	from  *os.File   // nil once there is nothing left to take
	found *disk.File
	left  map[keptKey]*disk.Entry
	end   *time.Timer // drops what is left
}

// open finds what was kept. What it cannot read it says, and does without.
func (k *keeper) open() {
	from, err := os.Open(k.file)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	var info os.FileInfo
	var found *disk.File
	if err == nil {
		info, err = from.Stat()
	}
	if err == nil {
		found, err = disk.Open(from, info.Size())
	}
	if err != nil {
		k.metrics.unusable.Inc()
		k.log.Warn("the index on disk cannot be used: it is made anew", "file", k.file, "err", err)
		_ = from.Close() // it was only read
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	blocks := 0
	k.from, k.found, k.left = from, found, map[keptKey]*disk.Entry{}
	for _, e := range found.Entries() {
		k.left[keptKey{e.Partition, e.Worker}] = &e
		blocks += e.Blocks
	}
	k.end = time.AfterFunc(keptFor, k.close)
	defer k.closeEmpty()
	k.log.Info("index found on disk", "ranks", len(k.left), "blocks", blocks, "bytes", info.Size(), "age", time.Since(info.ModTime()).Round(time.Millisecond))
}

// close forgets what no rank has taken over.
func (k *keeper) close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	clear(k.left)
	k.closeEmpty()
}

// closeEmpty closes the file once there is nothing left to take; k.mu is held.
func (k *keeper) closeEmpty() {
	if k.from == nil || len(k.left) > 0 {
		return
	}
	k.end.Stop()
	_ = k.from.Close() // it was only read
	k.from, k.found = nil, nil
}

// drop forgets the part of a rank.
func (k *keeper) drop(l *catalog.Listening) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.left, keptKey{l.Partition, l.Worker})
	k.closeEmpty()
}

// unfitError says why a part is not that of a rank as it is now. It may be again: what an
// engine is, is known for sure only once it has been asked.
type unfitError struct{ error }

// read reads a rank's part. The entry is nil where there is none.
func (k *keeper) read(l *catalog.Listening, blockSize int) (e *disk.Entry, s disk.Stream, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	e = k.left[keptKey{l.Partition, l.Worker}]
	switch {
	case e == nil:
		return nil, s, nil
	case e.BlockSize != blockSize:
		return e, s, unfitError{fmt.Errorf("its blocks have %d tokens, the partition's %d", e.BlockSize, blockSize)}
	case e.Engine != l.Engine:
		return e, s, unfitError{fmt.Errorf("its engine was %q and is %q", e.Engine, l.Engine)}
	}
	s, err = k.found.Read(e)
	return e, s, err
}

// restore has a rank take its part over, and returns from where its stream goes on; nil
// where there is nothing.
func (k *keeper) restore(p *partitionCache, l *catalog.Listening, r *fleet.Record) *zmq.Position {
	began := time.Now()
	e, s, err := k.read(l, p.blockSize)
	if e == nil {
		return nil
	}
	log := k.log.With("partition", l.Partition.String(), "worker", l.Worker.String())
	var from zmq.Position
	if err == nil {
		from, err = takeIn(p, l.Worker, r, &s)
	}
	if err != nil {
		k.metrics.unusable.Inc()
		log.Warn("index on disk not restored", "err", err)
		if _, unfit := errors.AsType[unfitError](err); !unfit {
			k.drop(l)
		}
		return nil
	}
	k.metrics.restored.Inc()
	log.Info("index restored from disk", "blocks", e.Blocks, "bytes", e.Bytes(), "last_seq", from.Stream.Last(), "age", began.Sub(e.At).Round(time.Millisecond), "took", time.Since(began))
	return &from
}

// takeOver has a rank that is about to be listened to take over what is known of it, and
// returns from where its stream goes on; nil for the beginning.
func (c *caches) takeOver(p *partitionCache, l *catalog.Listening, r *fleet.Record) *zmq.Position {
	if l.Replay == "" && c.warm.restore(p, l.Partition, l.Worker) {
		c.kept.drop(l)
		return nil
	}
	from := c.kept.restore(p, l, r)
	if from == nil {
		c.warm.restore(p, l.Partition, l.Worker)
	}
	return from
}

// giveBack undoes takeOver for a rank that is not listened to.
func (c *caches) giveBack(p *partitionCache, w fleet.Worker, from *zmq.Position) {
	p.Remove(w)
	if from == nil {
		return
	}
	for _, rank := range from.Others {
		p.Remove(rank)
	}
}

// takeIn puts what a stream of w stored in place, whole or not at all.
func takeIn(p *partitionCache, w fleet.Worker, r *fleet.Record, s *disk.Stream) (from zmq.Position, err error) {
	if err := from.Stream.UnmarshalBinary(s.Position); err != nil {
		return from, err
	}
	for _, rank := range s.Ranks {
		if other := rank.Worker; other != w {
			if _, own := r.KVEvents[int(other.Rank)]; own || !r.Owns(other.Rank) {
				return from, fmt.Errorf("its stream stored for rank %d, which the worker no longer has or which has a stream of its own by now", other.Rank)
			}
			from.Others = append(from.Others, other)
		}
	}
	for i, rank := range s.Ranks {
		lost := p.Restore(rank.Worker, rank.Rest, rank.Changes)
		if lost == 0 {
			continue
		}
		for _, done := range s.Ranks[:i+1] {
			p.Remove(done.Worker)
		}
		return from, fmt.Errorf("there is no place for %d of its blocks", lost)
	}
	return from, nil
}

// write writes what the streams stored, and what is left of the file before. When it
// fails, that file stays.
func (k *keeper) write(ctx context.Context, c *caches, level slog.Level) error {
	began := time.Now()
	var w *disk.Writer
	err := durable.Write(k.file, 0o600, func(to io.Writer) error {
		w = disk.NewWriter(to)
		copied, err := k.copyLeft(w, c.streaming())
		if err != nil {
			return err
		}
		for _, s := range c.streaming() { // one that came meanwhile may have taken its part over
			if err := context.Cause(ctx); err != nil {
				return err
			}
			if copied[s.Worker] {
				continue
			}
			if err := c.keep(w, &s); err != nil {
				return err
			}
		}
		return w.Close()
	})
	if err != nil {
		return err
	}
	k.metrics.wrote(w, time.Since(began))
	k.log.Log(ctx, level, "index written to disk", "ranks", w.Streams, "blocks", w.Blocks, "bytes", w.Bytes(), "took", time.Since(began))
	return nil
}

// unwritten says that write failed.
func (k *keeper) unwritten(err error) {
	k.metrics.failed.Inc()
	k.log.Warn("index not written to disk: the file before stays", "file", k.file, "err", err)
}

// copyLeft writes what no rank has taken over yet, of those that are not listened to, and
// returns whose that was.
func (k *keeper) copyLeft(w *disk.Writer, streams map[fleet.Worker]streaming) (map[fleet.Worker]bool, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	copied := map[fleet.Worker]bool{}
	for key, e := range k.left {
		if _, listened := streams[key.Worker]; listened {
			continue
		}
		section, err := k.found.Section(e)
		if err != nil {
			k.metrics.unusable.Inc()
			k.log.Warn("index on disk not written again", "partition", key.PartitionKey.String(), "worker", key.Worker.String(), "err", err)
			delete(k.left, key)
			continue
		}
		if err := w.AddSection(e, section); err != nil {
			return nil, err
		}
		copied[key.Worker] = true
	}
	return copied, nil
}

// streaming is a rank whose events are listened to.
type streaming struct {
	catalog.Listening
	part *partitionCache
}

// streaming are the ranks whose events are listened to.
func (c *caches) streaming() map[fleet.Worker]streaming {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.streams)
}

// keep writes what a stream stored, all of one moment, where it can go on from there.
func (c *caches) keep(w *disk.Writer, s *streaming) error {
	var at zmq.Position
	var ranks []indexer.Snapshot
	moment := time.Now()
	handed := c.ingress.Hand(s.Worker, func(p zmq.Position) {
		at, moment = p, time.Now()
		for _, rank := range append([]fleet.Worker{s.Worker}, p.Others...) {
			if snapshot, ok := s.part.Snapshot(rank); ok {
				ranks = append(ranks, snapshot)
			}
		}
	})
	if !handed {
		return nil
	}
	position, err := at.Stream.MarshalBinary()
	if err != nil {
		return err
	}
	return w.Add(disk.Entry{Partition: s.Partition, Worker: s.Worker, Engine: s.Engine, BlockSize: s.part.blockSize, At: moment}, position, ranks)
}

// discard removes what a run before kept: it would be old when it is wanted again.
func (k *keeper) discard(cfg *config.Index) error {
	if _, err := os.Stat(k.file); err == nil {
		k.log.Warn("the index on disk is removed: this run does not keep one", "file", k.file, "index.kind", cfg.Kind, "index.dump", cfg.Dump)
	}
	return durable.Remove(k.file)
}

// keepIndex has the index found on disk at start, and written to it at stop and now and
// then.
func keepIndex(lc fx.Lifecycle, cfg config.Config, d *dataDir, index *caches, log *slog.Logger, reg prometheus.Registerer, failed failures) {
	k := &index.kept
	k.file, k.log = d.file(keptFile), log.With("component", "index")
	if !cfg.Index.Dump || cfg.Index.Kind != config.IndexExact {
		lc.Append(fx.StartHook(func() error { return k.discard(&cfg.Index) }))
		return
	}
	k.metrics = newKeepMetrics(reg)
	lc.Append(fx.Hook{
		OnStart: func(context.Context) error {
			k.open()
			return nil
		},
		OnStop: func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, keepWithin)
			defer cancel()
			if err := k.write(ctx, index, slog.LevelInfo); err != nil {
				k.unwritten(err)
			}
			k.close()
			return nil
		},
	})
	every := cfg.Index.DumpInterval.Std()
	if every == 0 {
		return
	}
	background(lc, failed, "keeping of the index", func(ctx context.Context) error {
		ticks := time.NewTicker(every)
		defer ticks.Stop()
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-ticks.C:
				if err := k.write(ctx, index, slog.LevelDebug); err != nil && ctx.Err() == nil { // else the stop writes it
					k.unwritten(err)
				}
			}
		}
	})
}
