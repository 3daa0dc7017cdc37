package app

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"path/filepath"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/routerd/routerd/catalog"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/indexer"
	"github.com/routerd/routerd/indexer/disk"
	"github.com/routerd/routerd/indexer/dump"
	"github.com/routerd/routerd/ingress/zmq"
	"github.com/routerd/routerd/internal/config"
	"github.com/routerd/routerd/internal/durable"
	"github.com/routerd/routerd/kvcache"
)

// bareCache is an index of events alone.
func bareCache(blockSize int) *partitionCache {
	p, err := newPartitionCache(fleet.PartitionKey{}, blockSize, &config.Index{Kind: config.IndexExact}, slog.New(slog.DiscardHandler))
	if err != nil {
		panic(err) // no such limits are checked
	}
	return p
}

// TakeIn has rank 0 of a worker take over what its stream stored, from a position of
// these bytes, and returns how many blocks the index then has of each rank.
func TakeIn(r *fleet.Record, position []byte, ranks []indexer.Snapshot) (others []fleet.Worker, blocks map[fleet.Worker]int, err error) {
	p := bareCache(4)
	from, err := takeIn(p, fleet.Worker{ID: r.ID}, r, &disk.Stream{Position: position, Ranks: ranks})
	blocks = map[fleet.Worker]int{}
	for _, w := range p.Workers() {
		for _, n := range p.Blocks(w) {
			blocks[w] += n
		}
	}
	return from.Others, blocks, err
}

// keptRank is a keeper whose file has rank 0 of worker 1, an engine vllm with blocks of 4
// tokens, at a position of these bytes.
func keptRank(dir string, position []byte, ranks ...indexer.Snapshot) (*keeper, error) {
	k := &keeper{file: filepath.Join(dir, keptFile), log: slog.New(slog.DiscardHandler), metrics: newKeepMetrics(prometheus.NewRegistry())}
	err := durable.Write(k.file, 0o600, func(to io.Writer) error {
		w := disk.NewWriter(to)
		return errors.Join(w.Add(disk.Entry{Worker: fleet.Worker{ID: 1}, Engine: "vllm", BlockSize: 4}, position, ranks), w.Close())
	})
	if err == nil {
		k.open()
	}
	return k, err
}

func (k *keeper) count() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.left)
}

// KeptOnDisk is how many ranks of a file are still kept, in the file that is written then
// too, when none took its part for so long.
func KeptOnDisk(dir string, d time.Duration) (left, written int, err error) {
	k, err := keptRank(dir, nil)
	if err != nil {
		return 0, 0, err
	}
	defer k.close()
	<-time.After(d)
	index, err := newCaches(nil, config.Config{}, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	if err != nil {
		return 0, 0, err
	}
	if err := k.write(context.Background(), index, slog.LevelInfo); err != nil {
		return 0, 0, err
	}
	again := &keeper{file: k.file, log: k.log, metrics: k.metrics}
	again.open()
	defer again.close()
	return k.count(), again.count(), nil
}

// RestoreAs has rank 0 of worker 1 take its part over as an engine of that kind with
// blocks of that size, in turn, and tells after each whether it got it and what is left.
func RestoreAs(dir string, position []byte, engines []string, blockSizes []int) (got []bool, left []int, err error) {
	k, err := keptRank(dir, position)
	if err != nil {
		return nil, nil, err
	}
	defer k.close()
	for i, engine := range engines {
		p := bareCache(blockSizes[i])
		l := catalog.Listening{Worker: fleet.Worker{ID: 1}, Engine: engine}
		got = append(got, k.restore(p, &l, &fleet.Record{ID: 1}) != nil)
		left = append(left, k.count())
	}
	return got, left, nil
}

// ListenInVain listens to rank 0 of worker 1, which a file has with two blocks, at an
// address that is none, then at one. It returns how many blocks the index has and how
// many ranks are left after each, and the first one's error.
func ListenInVain(dir string) (blocks, left [2]int, refused error) {
	w := fleet.Worker{ID: 1}
	change := indexer.Change{Blocks: []indexer.Block{{Hash: kvcache.NumberHash(1), Local: 2}, {Hash: kvcache.NumberHash(3), Local: 4}}}
	k, err := keptRank(dir, []byte{0, 0, 0}, indexer.Snapshot{Worker: w, Changes: slices.Values([]indexer.Change{change})})
	if err != nil {
		return blocks, left, err
	}
	k.close()
	in, err := zmq.New(zmq.DefaultConfig(), k.log, prometheus.NewRegistry())
	if err != nil {
		return blocks, left, err
	}
	c, err := newCaches(in, config.Config{}, k.log, prometheus.NewRegistry())
	if err != nil {
		return blocks, left, err
	}
	c.kept.file, c.kept.log, c.kept.metrics = k.file, k.log, k.metrics
	c.kept.open()
	defer c.kept.close()
	l := catalog.Listening{Worker: w, Engine: "vllm"}
	if _, err := c.Open(l.Partition, 4); err != nil {
		return blocks, left, err
	}
	for i, endpoint := range []string{"nowhere", "tcp://127.0.0.1:1"} {
		l.Endpoint = endpoint
		if err := c.Listen(l, func() *fleet.Record { return &fleet.Record{ID: 1} }); err != nil {
			refused = err
		}
		blocks[i], left[i] = c.part(l.Partition).Blocks(w)[kvcache.Device], c.kept.count()
	}
	return blocks, left, refused
}

// LeftBehind is how many blocks the index has of ranks 0 and 1 of worker 1, both of which the stream of rank 0 told of,
// while that is listened to and after.
func LeftBehind(dir string) (during, after [2]int, err error) {
	var ranks []indexer.Snapshot
	change := indexer.Change{Blocks: []indexer.Block{{Hash: kvcache.NumberHash(1), Local: 2}}}
	for i := range uint32(2) {
		ranks = append(ranks, indexer.Snapshot{Worker: fleet.Worker{ID: 1, Rank: i}, Changes: slices.Values([]indexer.Change{change})})
	}
	k, err := keptRank(dir, []byte{0, 0, 0}, ranks...)
	if err != nil {
		return during, after, err
	}
	k.close()
	in, err := zmq.New(zmq.DefaultConfig(), k.log, prometheus.NewRegistry())
	if err != nil {
		return during, after, err
	}
	c, err := newCaches(in, config.Config{}, k.log, prometheus.NewRegistry())
	if err != nil {
		return during, after, err
	}
	c.kept.file, c.kept.log, c.kept.metrics = k.file, k.log, k.metrics
	c.kept.open()
	defer c.kept.close()
	l := catalog.Listening{Worker: fleet.Worker{ID: 1}, Engine: "vllm", Endpoint: "tcp://127.0.0.1:1"}
	if _, err := c.Open(l.Partition, 4); err != nil {
		return during, after, err
	}
	err = c.Listen(l, func() *fleet.Record { return &fleet.Record{ID: 1, DPSize: 2} })
	for i := range during {
		during[i] = c.part(l.Partition).Blocks(ranks[i].Worker)[kvcache.Device]
	}
	c.Unlisten(l.Partition, l.Worker)
	for i := range after {
		after[i] = c.part(l.Partition).Blocks(ranks[i].Worker)[kvcache.Device]
	}
	return during, after, err
}

// PeersInVain is how many blocks the index has of a rank that took over what a peer knew, and that is not listened to
// since its address is none.
func PeersInVain() (blocks int, refused error) {
	log := slog.New(slog.DiscardHandler)
	in, err := zmq.New(zmq.DefaultConfig(), log, prometheus.NewRegistry())
	if err != nil {
		return 0, err
	}
	c, err := newCaches(in, config.Config{}, log, prometheus.NewRegistry())
	if err != nil {
		return 0, err
	}
	l := catalog.Listening{Worker: fleet.Worker{ID: 1}, Endpoint: "nowhere"}
	change := indexer.Change{Blocks: []indexer.Block{{Hash: kvcache.NumberHash(1), Local: 2}}}
	c.warm.fill(map[string]*dump.Index{l.Partition.String(): {
		BlockSize: 4, Ranks: map[fleet.Worker]*dump.Rank{l.Worker: {Changes: []indexer.Change{change}}},
	}}, log)
	defer c.warm.drop()
	if _, err := c.Open(l.Partition, 4); err != nil {
		return 0, err
	}
	refused = c.Listen(l, func() *fleet.Record { return &fleet.Record{ID: 1} })
	return c.part(l.Partition).Blocks(l.Worker)[kvcache.Device], refused
}
