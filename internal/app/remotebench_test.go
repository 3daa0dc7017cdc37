package app_test

import (
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/indexer/exact"
	"github.com/routerd/routerd/indexer/remote"
	"github.com/routerd/routerd/internal/app"
	"github.com/routerd/routerd/kvcache"
)

// benchPrimary is an index of one partition whose ranks are all trusted.
type benchPrimary struct{ *exact.Index }

func (p benchPrimary) Partition(fleet.PartitionKey) (x remote.Index, blockSize int, ok bool) {
	return p, 16, true
}
func (benchPrimary) Trusted(fleet.Worker) bool { return true }

func (benchPrimary) Record(fleet.PartitionKey, fleet.Worker, []kvcache.BlockHash, bool) bool {
	return true
}

// BenchmarkRemoteFind is a find of 512 blocks on 64 workers, each of which holds some of
// them, through the client that calls workers and the server of our APIs, which are in one
// process: alone, and 16 at once. us-p50 and us-p99 are on the clock.
func BenchmarkRemoteFind(b *testing.B) {
	const blocks, workers = 512, 64
	tokens := make([]uint32, blocks*16)
	for i := range tokens {
		tokens[i] = uint32(i)
	}
	hashes, err := kvcache.BlockHashes(nil, tokens, 16, kvcache.Seed("", ""))
	if err != nil {
		b.Fatal(err)
	}
	p, ranks := benchPrimary{exact.New(16)}, make([]fleet.Worker, workers)
	for w := range ranks {
		ranks[w].ID = fleet.WorkerID(w + 1)
		n := (w + 1) * blocks / workers
		e := kvcache.Event{Kind: kvcache.Stored, Tokens: tokens[:n*16], BlockSize: 16}
		for i := range n {
			e.Hashes = append(e.Hashes, kvcache.NumberHash(uint64(i)))
		}
		p.Apply(ranks[w], []kvcache.Event{e})
	}
	for _, network := range []string{"unix", "tcp"} {
		address := map[string]string{"unix": filepath.Join(b.TempDir(), "s"), "tcp": "127.0.0.1:0"}[network]
		ln, err := (&net.ListenConfig{}).Listen(b.Context(), network, address)
		if err != nil {
			b.Fatal(err)
		}
		x, stop, err := app.ServeAndRead(ln, p, time.Second, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
		if err != nil {
			b.Fatal(err)
		}
		for _, callers := range []int{1, 16} {
			b.Run(fmt.Sprintf("%s/callers=%d", network, callers), func(b *testing.B) {
				took := make([]time.Duration, b.N)
				out := make([][]kvcache.Overlap, callers)
				b.ReportAllocs()
				b.ResetTimer()
				var all sync.WaitGroup
				for c := range callers {
					out[c] = make([]kvcache.Overlap, workers)
					all.Go(func() {
						for i := c; i < b.N; i += callers {
							begun := time.Now()
							x.Find(hashes, ranks, out[c])
							took[i] = time.Since(begun)
							if out[c][workers-1].Device != blocks {
								b.Errorf("found %+v", out[c][workers-1])
								return
							}
						}
					})
				}
				all.Wait()
				b.StopTimer()
				slices.Sort(took)
				b.ReportMetric(float64(took[len(took)/2].Nanoseconds())/1e3, "us-p50")
				b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds())/1e3, "us-p99")
			})
		}
		stop()
	}
}
