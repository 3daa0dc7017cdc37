package catalog

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/internal/backoff"
)

// finish prepares the partition of some attempts with no lock held and commits the
// workers that are still wanted as they were, in one change. The attempts are in the
// order of their ids.
func (r *Reconciler) finish(ctx context.Context, group []*attempt) {
	defer r.end(group)
	r.prepare(ctx, group)
	for _, a := range group {
		a.entry.op.Lock()
	}
	all := group
	defer func() {
		for _, a := range all {
			a.entry.op.Unlock()
		}
	}()
	group = slices.DeleteFunc(slices.Clone(group), func(a *attempt) bool {
		// Withdrawn, changed or given up meanwhile: whoever did that, or Run, goes on.
		return !r.current(a.entry, a.round) || a.err != nil && ctx.Err() != nil
	})
	r.commit(group)
	told := false
	for _, a := range group {
		told = r.applied(a) || told
	}
	if told {
		r.changes.tell()
	}
}

// prepare has the partition built for those that are complete.
func (r *Reconciler) prepare(ctx context.Context, group []*attempt) {
	sizes := map[int]error{}
	for _, a := range group {
		if a.err != nil {
			continue
		}
		err, known := sizes[a.blockSize]
		if !known {
			if err = r.parts.Core.Prepare(ctx, a.record.Partition(), a.blockSize); err != nil {
				err = mismatch(fmt.Errorf("prepare partition %s: %w", a.record.Partition(), err))
			}
			sizes[a.blockSize] = err
		}
		a.err = err
	}
}

// commit hands the prepared workers to the core, together or, where that is refused, one
// by one. The listeners of a worker that moves end before its new partition knows it.
func (r *Reconciler) commit(group []*attempt) {
	var all []*attempt
	var change core.Change
	for _, a := range group {
		if a.err != nil {
			continue
		}
		e, key := a.entry, a.record.Partition()
		m, over := r.member(a)
		if over {
			r.uncommit(e)
			r.unlisten(e, nil)
			continue
		}
		if e.committed == key && e.applied.Record.Equal(m.Record) && e.applied.BlockSize == m.BlockSize &&
			e.applied.Lifecycle == m.Lifecycle && slices.Equal(e.applied.Reasons, m.Reasons) {
			continue
		}
		if e.committed != (fleet.PartitionKey{}) && e.committed != key {
			r.unlisten(e, nil)
		}
		all, change.Upserts = append(all, a), append(change.Upserts, m)
	}
	if len(all) == 0 {
		return
	}
	err := r.parts.Core.Commit(change)
	for i, a := range all {
		if err != nil && len(all) > 1 {
			a.err = r.parts.Core.Commit(core.Change{Upserts: change.Upserts[i : i+1]})
		} else {
			a.err = err
		}
		if a.err != nil {
			a.err = mismatch(fmt.Errorf("commit to partition %s: %w", a.record.Partition(), a.err))
			continue
		}
		a.entry.committed, a.entry.applied = a.record.Partition(), change.Upserts[i]
	}
}

// member is the worker as the core is to have it; over tells that its time to drain is
// over, so that the core is not to have it.
func (r *Reconciler) member(a *attempt) (m core.Member, over bool) {
	r.mu.Lock()
	d := a.entry.drain
	r.mu.Unlock()
	if d != nil && a.lifecycle != core.Incomplete {
		a.lifecycle = core.Draining
		if over = d.Over; over {
			a.reasons = []string{drainOver}
		}
	}
	return core.Member{Record: a.record, BlockSize: a.blockSize, Lifecycle: a.lifecycle, Reasons: a.reasons}, over
}

// applied settles an attempt by what became of it, and tells whether anything has
// changed for others.
func (r *Reconciler) applied(a *attempt) bool {
	e := a.entry
	if a.err != nil {
		r.uncommit(e)
		r.unlisten(e, nil)
		_, changed := r.settle(a, core.Incomplete, reasonsOf(a.err), nil)
		if changed {
			r.log.Warn("worker incomplete; it is tried again", "worker", a.want.Name, "err", a.err)
		}
		return changed
	}
	var failed []string
	if e.committed != (fleet.PartitionKey{}) {
		failed = r.listen(e, a.record)
	}
	was, changed := r.settle(a, a.lifecycle, a.reasons, failed)
	reasons := strings.Join(append(slices.Clone(a.reasons), failed...), "; ")
	switch {
	case was != a.lifecycle:
		r.log.Info("worker stands otherwise", "worker", a.want.Name, "lifecycle", string(a.lifecycle), "was", string(was), "partition", a.record.Partition().String(), "reasons", reasons)
	case changed && reasons != "":
		r.log.Warn("worker is not well", "worker", a.want.Name, "url", a.record.URL, "lifecycle", string(a.lifecycle), "reasons", reasons)
	}
	return changed
}

func (r *Reconciler) end(group []*attempt) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range group {
		if a.entry.attempt == a {
			a.entry.attempt = nil
		}
		close(a.done)
		if a.entry.again { // it may have come after this attempt had asked about health
			r.hurry()
		}
	}
}

func (r *Reconciler) current(e *entry, round uint64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return e.round == round
}

// settle shows the outcome of an attempt and plans the next one. failed are the
// reasons for which it is tried again though the worker serves. changed tells that
// something is otherwise than before.
func (r *Reconciler) settle(a *attempt, lifecycle core.Lifecycle, reasons, failed []string) (was core.Lifecycle, changed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e, now := a.entry, time.Now()
	reasons = append(slices.Clone(reasons), failed...)
	record := a.record
	if a.err != nil {
		record = shown(a.want, a.facts)
	}
	was = e.lifecycle
	changed = was != lifecycle || !slices.Equal(e.reasons, reasons) || !e.record.Equal(record) || !reflect.DeepEqual(e.facts, a.facts)
	e.lifecycle, e.reasons = lifecycle, reasons
	if e.round != a.round {
		return was, changed // changed a moment ago: the next attempt is due at once
	}
	e.facts, e.record = a.facts, record
	r.askLater(e, a, now)
	if e.doubts == a.doubts && a.facts != a.was {
		e.doubts = 0
	}
	e.pending = false
	if a.err == nil && len(failed) == 0 {
		e.failures = 0
		return was, changed
	}
	e.failures++
	e.retryAt = now.Add(backoff.Pause(firstPause, lastPause, e.failures))
	if a.err != nil && e.facts != nil {
		e.askAt = e.retryAt // what it told may be what is wrong
	}
	return was, changed
}

// listen starts the subscriptions that are missing or have changed and ends
// those that are no longer wanted; the others stay untouched.
func (r *Reconciler) listen(e *entry, rec fleet.Record) (reasons []string) {
	e.reading.Store(&rec)
	wanted := map[uint32]Listening{}
	for rank, endpoint := range rec.KVEvents {
		wanted[uint32(rank)] = Listening{
			Partition: rec.Partition(), Worker: fleet.Worker{ID: rec.ID, Rank: uint32(rank)},
			Engine: rec.Engine, Endpoint: endpoint, Replay: rec.Replay[rank],
		}
	}
	r.unlisten(e, wanted)
	for rank, l := range wanted {
		if _, ok := e.listening[rank]; ok {
			continue
		}
		if err := r.parts.Listeners.Listen(l, e.reading.Load); err != nil {
			reasons = append(reasons, fmt.Sprintf("kv_events.%d: %s", rank, err))
			continue
		}
		e.listening[rank] = l
	}
	slices.Sort(reasons)
	return reasons
}

// unlisten ends the subscriptions that are not in keep, all of a partition in one step.
func (r *Reconciler) unlisten(e *entry, keep map[uint32]Listening) {
	ends := map[fleet.PartitionKey][]fleet.Worker{}
	for rank, l := range e.listening {
		if keep[rank] == l {
			continue
		}
		ends[l.Partition] = append(ends[l.Partition], l.Worker)
		delete(e.listening, rank)
	}
	for key, ranks := range ends {
		slices.SortFunc(ranks, fleet.Worker.Compare)
		r.parts.Listeners.Unlisten(key, ranks...)
	}
}
