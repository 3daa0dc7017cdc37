package catalog

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/fleet"
)

// maxProbes bounds how many engines are asked at once that have never failed to answer,
// maxReprobes how many others: those that are silent hold up nobody who comes.
const maxProbes, maxReprobes = 256, 128

// orderFor is how long a worker waits for those of lower ids that are asked
// together with it, so that which one fixes the partition's block size does not
// depend on chance.
const orderFor = 100 * time.Millisecond

// attempt is one try to make a worker ready as it is wanted in that round.
type attempt struct {
	entry  *entry
	want   fleet.Record
	round  uint64
	ask    bool                    // the engine is asked, whether or not something is missing
	cut    context.CancelCauseFunc // ends the question under way; Reconciler.mu guards it
	was    *Facts                  // what the engine told before
	failed bool                    // it has failed before
	doubts int                     // entry.doubts as it begins
	back   bool                    // it was ejected or doubted: what answers may be another engine
	done   chan struct{}           // closed when it ended

	facts     *Facts // what it told now; was when it was not asked or did not answer
	asked     bool
	record    fleet.Record
	blockSize int
	lifecycle core.Lifecycle
	reasons   []string
	err       error
}

// Bring tries once to make the workers ready, all at the same time, and waits
// for it. A worker that another call tries already is not tried twice. When ctx
// ends first, Run goes on with what was not told.
func (r *Reconciler) Bring(ctx context.Context, ids ...fleet.WorkerID) { r.bring(ctx, ids, false) }

// bring is Bring; onlyDue leaves out those whose attempt somebody has made since they
// were found to be due.
func (r *Reconciler) bring(ctx context.Context, ids []fleet.WorkerID, onlyDue bool) {
	mine, others := r.claim(ids, onlyDue)
	r.bringTogether(ctx, mine)
	for _, done := range others {
		select {
		case <-done:
		case <-ctx.Done():
			return
		}
	}
}

// claim begins the attempts, by id, and returns the ends of those that run already.
func (r *Reconciler) claim(ids []fleet.WorkerID, onlyDue bool) (mine []*attempt, others []<-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range slices.Sorted(slices.Values(ids)) {
		e := r.entries[id]
		switch {
		case e == nil:
		case e.tried():
			others = append(others, e.attempt.done)
		case onlyDue && !e.due(time.Now()):
		default:
			e.attempt = &attempt{
				entry: e, want: e.want, round: e.round, was: e.facts, done: make(chan struct{}),
				failed: e.failures > 0,
				doubts: e.doubts,
				back:   e.doubts > 0 || e.lifecycle == core.Ejected,
				ask:    !e.askAt.IsZero() && !time.Now().Before(e.askAt) && !e.hasNews(),
			}
			e.again = false
			mine = append(mine, e.attempt)
		}
	}
	return mine, others
}

// bringTogether looks into all workers at once and hands them on as they come: for a
// short while by id, then as they are, so that a silent engine delays no other. What
// has come meanwhile is committed in one change.
func (r *Reconciler) bringTogether(ctx context.Context, group []*attempt) {
	answers := make(chan *attempt, len(group))
	for _, a := range group {
		go func() {
			r.look(ctx, a)
			answers <- a
		}()
	}
	late := time.NewTimer(orderFor)
	defer late.Stop()
	lines := finishers{r: r, ctx: ctx, lines: map[fleet.PartitionKey]chan []*attempt{}}
	defer lines.end()
	ordered, answered := true, map[*attempt]bool{}
	for len(group) > 0 {
		select {
		case a := <-answers:
			answered[a] = true
			for more := len(answers); more > 0; more-- {
				answered[<-answers] = true
			}
		case <-late.C:
			ordered = false
		}
		var ready, silent []*attempt
		waits := map[fleet.PartitionKey]bool{} // by what was wanted: only those of one partition wait for each other
		for _, a := range group {
			key := a.want.Partition()
			if !answered[a] || ordered && waits[key] {
				waits[key] = true
				silent = append(silent, a)
				continue
			}
			ready = append(ready, a)
		}
		group = silent
		for _, one := range byPartition(ready) {
			lines.add(one, cap(answers))
		}
	}
}

// finishers finish the attempts of each partition one batch after the other.
type finishers struct {
	r     *Reconciler
	ctx   context.Context //nolint:containedctx // of the one call that it lives for
	lines map[fleet.PartitionKey]chan []*attempt
	all   sync.WaitGroup
}

// add hands a batch of one partition on. There are at most so many for each.
func (f *finishers) add(batch []*attempt, most int) {
	key := batch[0].record.Partition()
	line := f.lines[key]
	if line == nil {
		line = make(chan []*attempt, most)
		f.lines[key] = line
		f.all.Go(func() {
			for batch := range line {
				for more := len(line); more > 0; more-- { // what came meanwhile goes together
					batch = append(batch, <-line...)
				}
				slices.SortFunc(batch, func(a, b *attempt) int { return cmp.Compare(a.want.ID, b.want.ID) })
				f.r.finish(f.ctx, batch)
			}
		})
	}
	line <- batch
}

// end waits until all are finished.
func (f *finishers) end() {
	for _, line := range f.lines {
		close(line)
	}
	f.all.Wait()
}

// byPartition splits attempts by where their workers go, in order. A policy that is
// slow to build delays only its own partition.
func byPartition(all []*attempt) [][]*attempt {
	var out [][]*attempt
	at := map[fleet.PartitionKey]int{}
	for _, a := range all {
		key := a.record.Partition()
		i, ok := at[key]
		if !ok {
			i = len(out)
			at[key] = i
			out = append(out, nil)
		}
		out[i] = append(out[i], a)
	}
	return out
}

// look finds out what the worker is and how it stands, with no lock held.
func (r *Reconciler) look(ctx context.Context, a *attempt) {
	a.facts, a.record = a.was, merged(a.want, a.was)
	if a.err = a.lacksFirst(r.configured(a.want)); a.err != nil {
		return
	}
	if missing := r.missing(a.record); a.ask || len(missing) > 0 {
		err := r.askEngine(ctx, a, len(missing) > 0)
		if still := r.missing(a.record); len(still) > 0 {
			a.err = a.untold(still, err)
			return
		}
	}
	if r.parts.Adapters != nil && len(a.want.Adapters) == 0 && a.want.Asked == "" {
		if loaded, ok := r.parts.Adapters(a.want.ID); ok {
			a.record = withAdapters(a.record, loaded)
		}
	}
	full, err := a.record.Filled()
	if err != nil {
		a.err = err
		return
	}
	a.record = full
	if a.blockSize, a.err = r.blockSize(a.record); a.err != nil {
		return
	}
	if a.err = lacking(a.record, a.blockSize); a.err != nil {
		return
	}
	other, sure := otherModel(a.record, a.facts)
	if sure {
		a.err = incompleteError{other}
		return
	}
	a.lifecycle = core.Ready
	if r.parts.Health != nil && !a.record.NoHealthCheck {
		a.lifecycle, a.reasons = r.parts.Health.Standing(ctx, a.record)
	}
	if other != "" {
		a.reasons = append(slices.Clone(a.reasons), other)
	}
}

func (r *Reconciler) configured(rec fleet.Record) int {
	return r.parts.Engines.Configured(rec.Partition().Model)
}

// mismatchError is a block size that contradicts another.
type mismatchError struct{ has, want int }

func (e *mismatchError) Error() string {
	return fmt.Sprintf(blockSizeMismatch+": the worker says %d, the model's configuration %d", e.has, e.want)
}

// blockSize is the model's configuration, else the record's, which may be the engine's
// own.
func (r *Reconciler) blockSize(rec fleet.Record) (int, error) {
	configured := r.configured(rec)
	switch {
	case configured != 0 && rec.BlockSize != 0 && configured != rec.BlockSize:
		return 0, &mismatchError{has: rec.BlockSize, want: configured}
	case configured != 0:
		return configured, nil
	}
	return rec.BlockSize, nil
}
