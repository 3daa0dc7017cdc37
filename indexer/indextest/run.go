package indextest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/kvcache"
)

// blockSize of the random runs; small, so that many tokens lists share blocks.
const blockSize = 2

// Evictor is an index that gives blocks up when it is told to: such as have about so many bytes. It tells each.
type Evictor interface {
	Evict(bytes int64, gone func(fleet.Worker, kvcache.Tier, kvcache.EngineHash))
}

// Run compares the index that newIndex makes with the plain model, by random operations: holes, repeated and moved
// hashes, tiers, groups, salts, images, refused events, recorded prompts, time that passes, cleared and removed workers, blocks
// that are given up, and indexes that are carried over. What an index does not do it is not asked for. It makes 100,000
// steps, which take some seconds.
func Run[F Finder](t *testing.T, newIndex func(blockSize int) F, options ...Option) {
	t.Helper()
	for seed := range uint64(rulesOf(options).seeds) {
		mode := int(seed) % len(modes)
		t.Run(fmt.Sprintf("%s/%d", modes[mode], seed), func(t *testing.T) { sequence(t, newIndex, mode, seed, options) })
	}
}

// Soak is Run with ever new sequences until so much time has gone by.
func Soak[F Finder](t *testing.T, newIndex func(blockSize int) F, long time.Duration, options ...Option) {
	t.Helper()
	n, end := 0, time.Now().Add(long)
	for seed := rand.Uint64(); time.Now().Before(end) && !t.Failed(); seed++ {
		sequence(t, newIndex, n%len(modes), seed, options)
		n++
	}
	t.Logf("%d sequences", n)
}

// sequence does random steps of one mode.
func sequence[F Finder](t *testing.T, newIndex func(blockSize int) F, mode int, seed uint64, options []Option) {
	t.Helper()
	inTime(t, options, func(t *testing.T) {
		r := newRunner(newIndex, options)
		defer r.index.close()
		g := newGenerator(seed, mode, &r.index)
		for range steps {
			o := g.next()
			if d := r.step(o); d != "" {
				t.Fatalf("step %d: %s\nscript:\n%s", len(r.done), d, script(r.done))
			}
		}
		if d := r.compareAll(); d != "" {
			t.Fatalf("at the end: %s\nscript:\n%s", d, script(r.done))
		}
	})
}

// Replay runs a script that a failed Run printed, with the options of that.
func Replay[F Finder](t *testing.T, newIndex func(blockSize int) F, text string, options ...Option) {
	t.Helper()
	ops, err := parse(text)
	if err != nil {
		t.Fatal(err)
	}
	inTime(t, options, func(t *testing.T) {
		t.Helper()
		r := newRunner(newIndex, options)
		defer r.index.close()
		for i, o := range ops {
			if d := r.step(o); d != "" {
				t.Fatalf("step %d: %s", i+1, d)
			}
		}
	})
}

// inTime runs a test where the time passes only when it is told to, if it matters.
func inTime(t *testing.T, options []Option, test func(t *testing.T)) {
	t.Helper()
	if rulesOf(options).ttl > 0 {
		synctest.Test(t, test)
	} else {
		test(t)
	}
}

// runner applies steps to an index and to the model and compares them.
type runner struct {
	fresh   func() subject
	index   subject
	model   *model
	done    []op
	workers []fleet.Worker
	asked   op // the last find
}

func newRunner[F Finder](newIndex func(blockSize int) F, options []Option) *runner {
	rules := rulesOf(options)
	fresh := func() subject { return newSubject(newIndex(blockSize), rules) }
	r := &runner{fresh: fresh, index: fresh(), workers: []fleet.Worker{{ID: 99}}, asked: op{Do: "find"}}
	r.model = newModel(blockSize, &r.index)
	return r
}

// step applies one step and returns how index and model differ afterwards, or "".
func (r *runner) step(o op) string {
	r.done = append(r.done, o)
	w := o.who()
	if !slices.Contains(r.workers, w) {
		r.workers = append(r.workers, w)
	}
	switch o.Do {
	case "clear":
		r.index.holder.Clear(w)
		r.model.clear(w)
	case "remove":
		r.index.holder.Remove(w)
		r.model.remove(w)
	case "record":
		blocks, err := o.blocks()
		if err != nil {
			return err.Error()
		}
		r.index.recorder.Record(w, blocks)
		r.model.record(w, blocks)
	case "forget":
		r.index.recorder.Forget(w)
		r.model.forget(w)
	case "pass":
		time.Sleep(time.Duration(o.Ticks) * r.index.rules.tick())
		synctest.Wait()
	case "find":
		r.asked = o
	case "carry":
		return r.carry()
	case "evict":
		return r.evict(o.Bytes)
	default:
		e := o.event()
		got := r.index.feed.Apply(w, []kvcache.Event{e})
		if want := r.model.apply(w, e); want != got {
			return "result (-model +index): " + cmp.Diff(want, got)
		}
	}
	r.index.catchUp()
	if d := r.compareBlocks(w); d != "" {
		return d
	}
	return r.compareFind(r.asked)
}

// carry goes on with an index that took the snapshots of all workers over.
func (r *runner) carry() string {
	from, to := r.index, r.fresh()
	defer from.close()
	for _, w := range from.snapshots.Workers() {
		s, ok := from.snapshots.Snapshot(w)
		if !ok {
			return fmt.Sprintf("worker %s has no snapshot", w)
		}
		from.holder.Clear(w) // the snapshot does not depend on it
		if lost := to.snapshots.Restore(w, s.Rest, s.Changes); lost > 0 {
			return fmt.Sprintf("worker %s: %d blocks lost their parents", w, lost)
		}
	}
	r.index = to
	r.model.carry()
	r.index.catchUp()
	return r.compareAll()
}

// compareAll compares what all workers hold.
func (r *runner) compareAll() string {
	for _, w := range r.workers {
		if d := r.compareBlocks(w); d != "" {
			return d
		}
	}
	return ""
}

// evict has the index give blocks up, and the model those that it tells.
func (r *runner) evict(bytes int64) string {
	r.index.evictor.Evict(bytes, r.model.evict)
	for _, w := range r.workers {
		if d := r.compareBlocks(w); d != "" {
			return d
		}
	}
	return ""
}

func (r *runner) compareBlocks(w fleet.Worker) string {
	if r.index.counts != nil {
		if want, got := r.model.blocks(w), r.index.counts.Blocks(w); want != got {
			return "blocks (-model +index): " + cmp.Diff(want, got)
		}
	}
	if r.index.hashes == nil {
		return ""
	}
	want, got := r.model.hashes(w), r.index.hashes.Hashes(w)
	for _, t := range kvcache.AllTiers() {
		if !slices.Equal(want[t], got[t]) {
			return fmt.Sprintf("hashes on %s: model %v, index %v", t, want[t], got[t])
		}
	}
	return ""
}

func (r *runner) compareFind(o op) string {
	blocks, err := o.blocks()
	if err != nil {
		return err.Error()
	}
	got := make([]kvcache.Overlap, len(r.workers))
	for i := range got {
		got[i].Device = 1 << 30 // Find must overwrite it
	}
	r.index.Find(blocks, r.workers, got)
	for i, w := range r.workers {
		if want := r.model.overlap(w, blocks); want != got[i] {
			return fmt.Sprintf("worker %s: index finds %+v, model %+v", w, got[i], want)
		}
	}
	return ""
}
