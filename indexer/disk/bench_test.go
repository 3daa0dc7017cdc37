package disk_test

import (
	"bytes"
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/indexer"
	"github.com/routerd/routerd/indexer/disk"
	"github.com/routerd/routerd/indexer/exact"
	"github.com/routerd/routerd/kvcache"
)

const (
	benchWorkers = 64
	benchBlocks  = 20_000
	benchDepth   = 512
)

// fleetIndex is an index of 64 workers with 20,000 blocks each, in chains of 512 of which
// half begin alike.
func fleetIndex(b *testing.B) *exact.Index {
	b.Helper()
	const size = 16
	x := exact.New(size)
	tokens := make([]uint32, size*benchDepth)
	hashes := make([]kvcache.EngineHash, benchDepth)
	for w := range benchWorkers {
		for done := 0; done < benchBlocks; done += benchDepth {
			for i := range tokens {
				tokens[i] = uint32(done + i)
				if i > len(tokens)/2 || done%2 > 0 {
					tokens[i] += uint32(w * 1_000_003)
				}
			}
			n := min(benchDepth, benchBlocks-done)
			for i := range hashes {
				hashes[i] = number((uint64(w)<<40 | uint64(done+i)) * 0x9E3779B97F4A7C15)
			}
			got := x.Apply(fleet.Worker{ID: fleet.WorkerID(w + 1)}, []kvcache.Event{{Kind: kvcache.Stored, Hashes: hashes[:n], Tokens: tokens[:n*size], BlockSize: size}})
			if got.Stored != n {
				b.Fatalf("stored %+v", got)
			}
		}
	}
	return x
}

// perBlock reports the time of a block, and that of the processor since before.
func perBlock(b *testing.B, before time.Duration) {
	b.Helper()
	blocks := float64(b.N) * benchWorkers * benchBlocks
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/blocks, "ns/block")
	b.ReportMetric(float64((processor(b)-before).Nanoseconds())/blocks, "cpu-ns/block")
}

// processor is how long the process has computed.
func processor(b *testing.B) time.Duration {
	b.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// BenchmarkWrite takes and writes what 64 workers of 20,000 blocks hold; longest is how long the taking of one
// keeps its events waiting.
func BenchmarkWrite(b *testing.B) {
	x := fleetIndex(b)
	var out bytes.Buffer
	longest, before := time.Duration(0), processor(b)
	for b.Loop() {
		out.Reset()
		w := disk.NewWriter(&out)
		for _, worker := range x.Workers() {
			began := time.Now()
			s, _ := x.Snapshot(worker)
			longest = max(longest, time.Since(began))
			if err := w.Add(disk.Entry{Partition: key, Worker: worker, BlockSize: 16}, nil, []indexer.Snapshot{s}); err != nil {
				b.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			b.Fatal(err)
		}
	}
	perBlock(b, before)
	b.ReportMetric(float64(out.Len())/(benchWorkers*benchBlocks), "B/block")
	b.ReportMetric(float64(longest.Microseconds())/1000, "ms/longest")
}

// BenchmarkRead reads and restores that.
func BenchmarkRead(b *testing.B) {
	x := fleetIndex(b)
	whole := file(b, func(w *disk.Writer) error {
		var errs []error
		for _, worker := range x.Workers() {
			s, _ := x.Snapshot(worker)
			errs = append(errs, w.Add(disk.Entry{Partition: key, Worker: worker, BlockSize: 16}, nil, []indexer.Snapshot{s}))
		}
		return errors.Join(errs...)
	})
	longest, before := time.Duration(0), processor(b)
	for b.Loop() {
		to, f := exact.New(16), mustOpen(b, whole)
		for _, e := range f.Entries() {
			began := time.Now()
			s, err := f.Read(&e)
			if err != nil {
				b.Fatal(err)
			}
			for _, r := range s.Ranks {
				if to.Restore(r.Worker, r.Rest, r.Changes) != 0 {
					b.Fatal("blocks are lost")
				}
			}
			longest = max(longest, time.Since(began))
		}
	}
	perBlock(b, before)
	b.ReportMetric(float64(longest.Microseconds())/1000, "ms/longest")
}
