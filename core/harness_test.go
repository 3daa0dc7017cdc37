package core_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"testing"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/kvcache"
	"github.com/routerd/routerd/plugins/abi"
)

// policies answers every rule with one handle, and each class with its own.
type policies struct {
	handle  *policy.Handle
	classes map[string]*policy.Handle
	gate    func(fleet.PartitionKey) error // called by Resolve; nil for none
}

func (s *policies) Resolve(key fleet.PartitionKey, class string) (*policy.Handle, error) {
	if s.gate != nil {
		if err := s.gate(key); err != nil {
			return nil, err
		}
	}
	if h := s.classes[class]; h != nil {
		return h, nil
	}
	return s.handle, nil
}

// cache is an index that a test fills: per worker the sequence hashes it holds.
type cache struct {
	mu        sync.Mutex
	held      map[fleet.Worker]map[kvcache.SequenceHash]bool
	untrusted map[fleet.Worker]bool
	opened    int                // how often a partition asked for its index
	recorded  func(fleet.Worker) // told of each booking; nil for an index that learns nothing of them
	forgotten []fleet.Worker
	byTokens  bool // what was recorded last
}

func newCache() *cache {
	return &cache{held: map[fleet.Worker]map[kvcache.SequenceHash]bool{}, untrusted: map[fleet.Worker]bool{}}
}

func (c *cache) Open(fleet.PartitionKey, int) (core.KvIndex, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.opened++
	return c, nil
}

func (c *cache) Find(blocks []kvcache.BlockHash, workers []fleet.Worker, out []kvcache.Overlap) {
	c.mu.Lock()
	defer c.mu.Unlock()
	seq := kvcache.SequenceHashes(nil, blocks)
	for i, w := range workers {
		out[i] = kvcache.Overlap{}
		for _, h := range seq {
			if !c.held[w][h] {
				break
			}
			out[i].Device++
		}
	}
}

// Record and Forget: what was booked counts as held, where the test wants that.
func (c *cache) Record(w fleet.Worker, blocks []kvcache.BlockHash, exact bool) {
	if c.recorded == nil {
		return
	}
	c.byTokens = exact
	c.recorded(w)
	c.hold(w, blocks)
}

func (c *cache) hold(w fleet.Worker, blocks []kvcache.BlockHash) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held[w] == nil {
		c.held[w] = map[kvcache.SequenceHash]bool{}
	}
	for _, h := range kvcache.SequenceHashes(nil, blocks) {
		c.held[w][h] = true
	}
}

func (c *cache) Forget(w fleet.Worker) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forgotten = append(c.forgotten, w)
}

func (c *cache) Trusted(w fleet.Worker) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.untrusted[w]
}

func (c *cache) store(w fleet.Worker, tokens []uint32, blockSize int) {
	blocks, err := kvcache.BlockHashes(nil, tokens, blockSize, kvcache.Seed("", ""))
	if err != nil {
		panic(err)
	}
	c.hold(w, blocks)
}

func (c *cache) drop(id fleet.WorkerID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for w := range c.held {
		if w.ID == id {
			delete(c.held, w)
		}
	}
}

// heard counts what telemetry was told.
type heard struct {
	mu       sync.Mutex
	decided  []core.DecisionEvent
	released []core.ReleaseEvent
}

func (h *heard) Decided(e *core.DecisionEvent) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.decided = append(h.decided, *e)
}

func (h *heard) Released(e *core.ReleaseEvent) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.released = append(h.released, *e)
}

// world is a core with fakes around it.
type world struct {
	*core.SelectionCore
	policies *policies
	cache    *cache
	heard    *heard
}

func newWorld(t testing.TB, spec policy.Spec, src policy.StageSource, change ...func(*core.Config)) *world {
	t.Helper()
	return newWorldIn(t, core.SelectionHost{}, spec, src, change...)
}

// newWorldIn is newWorld in a host of the test's.
func newWorldIn(t testing.TB, host core.SelectionHost, spec policy.Spec, src policy.StageSource, change ...func(*core.Config)) *world {
	t.Helper()
	seed := uint64(1)
	cfg := core.DefaultConfig()
	cfg.Seed = &seed
	for _, f := range change {
		f(&cfg)
	}
	if err := cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	w := &world{policies: &policies{}, cache: newCache(), heard: &heard{}}
	w.policies.handle = handleOf(t, revisionOf(t, "default", 1, spec, src))
	host.Telemetry = w.heard
	w.SelectionCore = core.New(cfg, host, w.policies, w.cache, slog.New(slog.DiscardHandler))
	return w
}

func revisionOf(t testing.TB, name string, n int, spec policy.Spec, src policy.StageSource) *policy.Revision {
	t.Helper()
	p, digests, err := policy.Compile(t.Context(), spec, src)
	if err != nil {
		t.Fatal(err)
	}
	return policy.NewRevision(name, n, spec, p, digests)
}

func handleOf(t testing.TB, rev *policy.Revision) *policy.Handle {
	t.Helper()
	h, err := policy.NewHandle(rev)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func use(stage string) policy.Spec {
	return policy.Spec{Scorers: []policy.ScorerSpec{{StageSpec: policy.StageSpec{Use: stage}}}}
}

func record(name, model string) fleet.Record {
	return fleet.Record{Name: name, Model: model, URL: "http://" + name + ".test:8000"}
}

// join prepares the record's partition with blocks of 16 and commits the record
// as ready.
func (w *world) join(t testing.TB, recs ...fleet.Record) {
	t.Helper()
	var ch core.Change
	for _, rec := range recs {
		if err := w.Prepare(t.Context(), rec.Partition(), 16); err != nil {
			t.Fatal(err)
		}
		ch.Upserts = append(ch.Upserts, core.Member{Record: rec, Lifecycle: core.Ready, BlockSize: 16})
	}
	if err := w.Commit(ch); err != nil {
		t.Fatal(err)
	}
}

func (w *world) remove(t testing.TB, names ...string) {
	t.Helper()
	var ch core.Change
	for _, n := range names {
		ch.Removals = append(ch.Removals, fleet.IDFromName(n))
	}
	if err := w.Commit(ch); err != nil {
		t.Fatal(err)
	}
}

// loads is the load of each rank by "name/rank".
func (w *world) loads() map[string]core.LoadView {
	out := map[string]core.LoadView{}
	for _, p := range w.Partitions() {
		for _, r := range p.Ranks {
			out[fmt.Sprintf("%s/%d", r.Name, r.Rank)] = r.Load
		}
	}
	return out
}

func (w *world) active() (total int64) {
	for _, l := range w.loads() {
		total += l.ActiveRequests
	}
	return total
}

func model(name string) fleet.PartitionKey { return fleet.PartitionKey{Model: name}.Normalised() }

// prompt makes n tokens that belong to a text called by a letter.
func prompt(text byte, n int) []uint32 {
	tokens := make([]uint32, n)
	for i := range tokens {
		tokens[i] = uint32(text)*1_000_000 + uint32(i)
	}
	return tokens
}

// stage is a scorer made of a function.
type stage struct {
	columns policy.ColumnSet
	score   func(ctx context.Context, t *policy.Table, scores []float64) error
	report  func(t *policy.Table, r *policy.StageReport) // nil reports nothing
	closed  func()
}

func (s *stage) Columns() policy.ColumnSet { return s.columns }

func (s *stage) Score(ctx context.Context, t *policy.Table, scores []float64, r *policy.StageReport) (policy.Verdict, error) {
	if s.report != nil {
		s.report(t, r)
	}
	return policy.Answered, s.score(ctx, t, scores)
}

func (s *stage) CheckOverrides(map[string]json.RawMessage) ([]string, error) { return nil, nil }

func (s *stage) Close() error {
	if s.closed != nil {
		s.closed()
	}
	return nil
}

// stages gives every module stage the same scorer.
type stages struct{ scorer policy.Scorer }

func (s stages) Stage(context.Context, abi.Kind, string, json.RawMessage) (policy.Stage, string, error) {
	return s.scorer, "sha256:00", nil
}
