package app

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/indexer"
	"github.com/routerd/routerd/indexer/disk"
	"github.com/routerd/routerd/indexer/exact"
	"github.com/routerd/routerd/internal/durable"
)

// TakeIn has rank 0 of a worker take over what its stream stored, from a position of
// these bytes, and returns how many blocks the index then has of each rank.
func TakeIn(r *fleet.Record, position []byte, ranks []indexer.Snapshot) (others []fleet.Worker, blocks map[fleet.Worker]int, err error) {
	p := &partitionCache{Indexer: exact.New(4), blockSize: 4}
	from, err := takeIn(p, fleet.Worker{ID: r.ID}, r, &disk.Stream{Position: position, Ranks: ranks})
	blocks = map[fleet.Worker]int{}
	for _, w := range p.Workers() {
		for _, n := range p.Blocks(w) {
			blocks[w] += n
		}
	}
	return from.Others, blocks, err
}

// KeptOnDisk is how many ranks of a file are still kept, in the file that is written then
// too, when none took its part for so long.
func KeptOnDisk(dir string, d time.Duration) (left, written int, err error) {
	k := &keeper{file: filepath.Join(dir, keptFile), log: slog.New(slog.DiscardHandler), metrics: newKeepMetrics(prometheus.NewRegistry())}
	err = durable.Write(k.file, 0o600, func(to io.Writer) error {
		w := disk.NewWriter(to)
		return errors.Join(w.Add(disk.Entry{Worker: fleet.Worker{ID: 1}}, nil, nil), w.Close())
	})
	if err != nil {
		return 0, 0, err
	}
	k.open()
	defer k.close()
	<-time.After(d)
	index, err := newCaches(nil, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	if err != nil {
		return 0, 0, err
	}
	k.write(context.Background(), index, slog.LevelInfo)
	k.mu.Lock()
	left = len(k.left)
	k.mu.Unlock()
	again := &keeper{file: k.file, log: k.log, metrics: k.metrics}
	again.open()
	defer again.close()
	return left, len(again.left), nil
}
