package bench_test

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/core/reserve"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/indexer"
	"github.com/routerd/routerd/indexer/exact"
	"github.com/routerd/routerd/kvcache"
)

// BenchmarkCore is a booking as a surface makes it, from the tokens of the
// prompt to its end: hash, look up, decide by kv-aware, book, answer, free. Of a
// prompt of 256 tokens nobody holds anything; of one of 8,192 tokens half the
// workers hold the first half. CPU time is that of the whole process, so that
// the collector's is in it, and what the figures are for a candidate is of the
// native default policy alone, from the table to the pick.
//
// Where $BENCH_DYNAMO names the rig that docs/benchmarks/core.md tells of, it
// has its turn in each round.
func BenchmarkCore(b *testing.B) {
	var all []booker
	for _, workers := range []int{8, 64, 512, 1024} {
		for _, tokens := range []int{256, 8192} {
			all = append(all, newWholeBooking(b, workers, tokens))
		}
		all = append(all, newPolicyAlone(b, workers))
	}
	peer := os.Getenv("BENCH_DYNAMO")
	ours, theirs := map[string]series{}, map[string]series{}
	const rounds = 9
	for range rounds {
		for _, one := range all {
			ours[one.name()] = append(ours[one.name()], one.round(b))
		}
		if peer == "" {
			continue
		}
		for name, us := range dynamoRound(b, peer) {
			theirs[name] = append(theirs[name], us)
		}
	}
	var names []string
	told := map[string]figures{}
	for _, one := range all {
		f := one.memory(b)
		f["cpu-us/op"] = ours[one.name()].median()
		if d := theirs[one.name()]; len(d) > 0 {
			f["dynamo-cpu-us/op"], f["x-dynamo"] = d.median(), ours[one.name()].over(d)
		}
		if p, ok := one.(*policyAlone); ok {
			f["ns/candidate"] = f["cpu-us/op"] * 1000 / float64(p.workers)
		}
		names, told[one.name()] = append(names, one.name()), f
	}
	report(b, names, told)
}

// booker is what is measured in turns.
type booker interface {
	name() string
	// round is the CPU time of one operation in µs.
	round(b *testing.B) float64
	// memory is what an operation allocates: how often, and bytes.
	memory(b *testing.B) figures
}

// wholeBooking books one prompt over and over.
type wholeBooking struct {
	workers int
	core    *core.SelectionCore
	tokens  []uint32
	batch   int // bookings of one round
	made    int
}

// newWholeBooking makes a core with ready workers and finds how many bookings
// take at least 50 ms.
func newWholeBooking(b *testing.B, workers, tokens int) *wholeBooking {
	b.Helper()
	const blockSize = 16
	key := fleet.PartitionKey{}.Normalised()
	index := oneIndex{exact.New(blockSize)}
	w := &wholeBooking{workers: workers, tokens: make([]uint32, tokens)}
	w.core = core.New(core.DefaultConfig(), core.SelectionHost{}, onePolicy{handleOf(b)}, index, nil)
	for i := range w.tokens {
		w.tokens[i] = uint32(i + 1)
	}
	if err := w.core.Prepare(b.Context(), key, blockSize); err != nil {
		b.Fatal(err)
	}
	var ch core.Change
	for i := range workers {
		r := fleet.Record{ID: fleet.WorkerID(i + 1), Name: "w" + strconv.Itoa(i), URL: "http://" + "w" + strconv.Itoa(i) + ".test:8000"}
		ch.Upserts = append(ch.Upserts, core.Member{Record: r, Lifecycle: core.Ready, BlockSize: blockSize})
	}
	if err := w.core.Commit(ch); err != nil {
		b.Fatal(err)
	}
	if tokens > 256 {
		half := w.tokens[:tokens/2]
		held := kvcache.Event{Tokens: half, BlockSize: blockSize, Hashes: make([]kvcache.EngineHash, len(half)/blockSize)}
		for i := range held.Hashes {
			held.Hashes[i] = kvcache.NumberHash(uint64(i + 1))
		}
		for i := range max(workers/2, 1) {
			if a := index.Apply(fleet.Worker{ID: fleet.WorkerID(i + 1)}, []kvcache.Event{held}); a.Stored != len(held.Hashes) {
				b.Fatalf("stored %+v", a)
			}
		}
	}
	for w.batch = 64; w.took(b, w.batch) < 50*time.Millisecond; {
		w.batch *= 2
	}
	return w
}

func (w *wholeBooking) name() string { return caseName(w.workers, len(w.tokens)) }

func caseName(workers, tokens int) string {
	if tokens == 0 {
		return fmt.Sprintf("policy/workers=%d", workers)
	}
	return fmt.Sprintf("workers=%d/tokens=%d", workers, tokens)
}

func (w *wholeBooking) round(b *testing.B) float64 {
	return float64(w.took(b, w.batch)) / float64(w.batch) / 1000
}

func (w *wholeBooking) took(b *testing.B, n int) time.Duration {
	b.Helper()
	begun := processTime()
	for range n {
		w.book(b)
	}
	return processTime() - begun
}

func (w *wholeBooking) book(b *testing.B) {
	w.made++
	sel, err := w.core.Select(context.Background(), &core.Request{
		Kind: core.Book, SelectionID: "b-" + strconv.Itoa(w.made), Surface: "bench", Prompt: core.Prompt{Tokens: w.tokens},
	})
	if err != nil {
		b.Fatal(err)
	}
	sel.Reservation.Release(reserve.Outcome{Kind: reserve.Completed})
}

func (w *wholeBooking) memory(b *testing.B) figures {
	return memoryOf(1000, func() { w.book(b) })
}

// policyAlone is the native default policy over a table that is ready.
type policyAlone struct {
	*decider
	workers, batch int
}

func newPolicyAlone(b *testing.B, workers int) *policyAlone {
	b.Helper()
	p := &policyAlone{decider: newDecider(b, "builtin:kv-aware", "", nil), workers: workers}
	t := &policy.Table{}
	fill(t, kvColumns(b), workers)
	p.set(b, t)
	for p.batch = 64; p.decide(b, p.batch) < 20*time.Millisecond; {
		p.batch *= 2
	}
	return p
}

func (p *policyAlone) name() string { return caseName(p.workers, 0) }

func (p *policyAlone) round(b *testing.B) float64 {
	return float64(p.decide(b, p.batch)) / float64(p.batch) / 1000
}

func (p *policyAlone) memory(b *testing.B) figures {
	return memoryOf(1000, func() { p.decide(b, 1) })
}

// memoryOf is what f allocates in the mean of n calls.
func memoryOf(n int, f func()) figures {
	f()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range n {
		f()
	}
	runtime.ReadMemStats(&after)
	return figures{
		"allocs": float64(after.Mallocs-before.Mallocs) / float64(n),
		"bytes":  float64(after.TotalAlloc-before.TotalAlloc) / float64(n),
	}
}

// processTime is the CPU time of the process with all its threads.
func processTime() time.Duration { return clockTime(unix.CLOCK_PROCESS_CPUTIME_ID) }

// handleOf publishes kv-aware for good: a handle has no end.
func handleOf(b *testing.B) *policy.Handle {
	b.Helper()
	spec := policy.Spec{Scorers: []policy.ScorerSpec{{StageSpec: policy.StageSpec{Use: "builtin:kv-aware"}}}}
	p, digests, err := policy.Compile(b.Context(), spec, nil)
	if err != nil {
		b.Fatal(err)
	}
	h, err := policy.NewHandle(policy.NewRevision("bench", 1, spec, p, digests))
	if err != nil {
		b.Fatal(err)
	}
	return h
}

type onePolicy struct{ handle *policy.Handle }

func (s onePolicy) Resolve(fleet.PartitionKey, string) (*policy.Handle, error) { return s.handle, nil }

// oneIndex is an index that is trusted.
type oneIndex struct{ indexer.Indexer }

func (s oneIndex) Open(fleet.PartitionKey, int) (core.KvIndex, error) { return s, nil }

func (oneIndex) Record(fleet.Worker, []kvcache.BlockHash, bool) {}

func (oneIndex) Forget(fleet.Worker) {}

func (oneIndex) Trusted(fleet.Worker) bool { return true }
