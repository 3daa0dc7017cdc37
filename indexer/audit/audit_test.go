package audit_test

import (
	"slices"
	"testing"
	"time"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/indexer/audit"
	"github.com/routerd/routerd/indexer/exact"
	"github.com/routerd/routerd/kvcache"
)

const size = 4

// world is an engine, what its events make of an index, and the audit of that.
type world struct {
	*audit.Audit
	t     *testing.T
	index *exact.Index
	now   time.Time
	last  uint64
	told  []bool
}

var w1 = fleet.Worker{ID: 1}

func newWorld(t *testing.T) *world { return newWorldOf(t, exact.New(size)) }

func newWorldOf(t *testing.T, index *exact.Index) *world {
	w := &world{t: t, index: index, now: time.Unix(1000, 0)}
	w.Audit = audit.New(w.index, func(_ fleet.Worker, mismatch bool) { w.told = append(w.told, mismatch) })
	return w
}

// prompt is a prompt of two blocks that no other begins with.
func (w *world) prompt() []uint32 {
	w.last++
	first := uint32(w.last) * 100
	return []uint32{first, first + 1, first + 2, first + 3, first + 4, first + 5, first + 6, first + 7}
}

// give hands the rank a prompt.
func (w *world) give(tokens []uint32) {
	blocks, err := kvcache.BlockHashes(nil, tokens, size, kvcache.Seed("", ""))
	if err != nil {
		w.t.Fatal(err)
	}
	w.Given(w1, blocks, w.now)
}

// store has the engine tell that it holds a prompt.
func (w *world) store(tokens []uint32) {
	w.last++
	w.index.Apply(w1, []kvcache.Event{{
		Kind: kvcache.Stored, BlockSize: size, Tokens: tokens,
		Hashes: []kvcache.EngineHash{kvcache.NumberHash(2 * w.last), kvcache.NumberHash(2*w.last + 1)},
	}})
	w.Stored(w1, w.now)
}

// round gives the rank a prompt, of which the engine stores what it makes of it.
func (w *world) round(as func([]uint32) []uint32) {
	tokens := w.prompt()
	w.give(tokens)
	if stored := as(tokens); stored != nil {
		w.store(stored)
	}
	w.now = w.now.Add(time.Minute)
}

func same(tokens []uint32) []uint32 { return tokens }

// shifted is what an engine stores whose template begins with a token that the router does not know of.
func shifted(tokens []uint32) []uint32 { return slices.Concat([]uint32{7}, tokens[:len(tokens)-1]) }

func nothing([]uint32) []uint32 { return nil }

func TestAnEngineThatStoresOtherBlocksIsFoundAndLetOff(t *testing.T) {
	w := newWorld(t)
	for range 20 {
		w.round(same)
	}
	for i := range 6 {
		if w.Mismatch(w1) {
			t.Fatalf("a mismatch after %d prompts", i)
		}
		w.round(shifted)
	}
	w.give(w.prompt()) // the fifth one's time is over
	if !w.Mismatch(w1) || w.Mismatches() != 1 || !slices.Equal(w.told, []bool{true}) {
		t.Fatalf("mismatch %v, %d in all, told %v; want one", w.Mismatch(w1), w.Mismatches(), w.told)
	}
	for range 3 {
		w.now = w.now.Add(time.Minute)
		w.round(same)
	}
	if w.Mismatch(w1) || w.Mismatches() != 0 || !slices.Equal(w.told, []bool{true, false}) {
		t.Errorf("mismatch %v, %d in all, told %v; want none any more", w.Mismatch(w1), w.Mismatches(), w.told)
	}
}

func TestAnEngineThatTellsNothingIsNotJudged(t *testing.T) {
	w := newWorld(t)
	for range 50 {
		w.round(nothing)
	}
	if w.Mismatch(w1) {
		t.Error("a mismatch of an engine that stored no block")
	}
}

func TestAPromptThatWaitsInTheEnginesQueueIsNoMismatch(t *testing.T) {
	w := newWorld(t)
	for range 50 {
		tokens := w.prompt()
		w.give(tokens)
		w.store(shifted(w.prompt())) // somebody else's
		for range 3 {
			w.now = w.now.Add(19 * time.Second)
			w.give(w.prompt()) // does not take the place of the one that is watched
		}
		w.store(tokens)
		w.now = w.now.Add(time.Minute)
	}
	if w.Mismatch(w1) {
		t.Error("a mismatch of an engine that stores each prompt after 57 s")
	}
}

func TestABlockThatIsEvictedAtOnceWasThere(t *testing.T) {
	w := newWorld(t)
	for range 50 {
		w.round(same)
		w.index.Clear(w1)
	}
	if w.Mismatch(w1) {
		t.Error("a mismatch of an engine that drops what it stored")
	}
}

// An engine stores no block anew that it has, so that what the index gave up of it does not come.
func TestABlockThatTheIndexGaveUpIsNoMismatch(t *testing.T) {
	w := newWorldOf(t, exact.NewCapped(size, 1<<20))
	hot := w.prompt()
	w.store(hot)
	for w.index.Blocks(w1)[kvcache.Device] == int(w.last) { // each prompt counts twice, and has two blocks
		w.store(w.prompt())
	}
	for range 7 {
		w.give(hot)
		w.store(w.prompt())
		w.now = w.now.Add(time.Minute)
	}
	if w.Mismatch(w1) {
		t.Error("a mismatch of an engine that has a block which the index gave up")
	}
}

func TestARankThatLeavesIsForgotten(t *testing.T) {
	w := newWorld(t)
	for range 7 {
		w.round(shifted)
	}
	if !w.Mismatch(w1) {
		t.Fatal("no mismatch")
	}
	if w.Forget(w1); w.Mismatch(w1) || w.Mismatches() != 0 {
		t.Errorf("mismatch %v, %d in all; want none", w.Mismatch(w1), w.Mismatches())
	}
}
