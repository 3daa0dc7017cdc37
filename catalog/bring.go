package catalog

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/fleet"
)

// maxProbes bounds how many engines are asked at once.
const maxProbes = 256

// orderFor is how long a worker waits for those of lower ids that are probed
// together with it, so that which one fixes the partition's block size does not
// depend on chance.
const orderFor = 100 * time.Millisecond

// attempt is one try to make a worker ready as it is wanted in that round.
type attempt struct {
	entry *entry
	want  fleet.Record
	round uint64
	done  chan struct{} // closed when it ended

	blockSize int
	err       error
}

// Bring tries once to make the workers ready, all at the same time, and waits
// for it. A worker that another call tries already is not tried twice. When ctx
// ends first, Run goes on with what was not told.
func (r *Reconciler) Bring(ctx context.Context, ids ...fleet.WorkerID) {
	mine, others := r.claim(ids)
	var all sync.WaitGroup
	for _, group := range mine {
		all.Go(func() { r.bringTogether(ctx, group) })
	}
	all.Wait()
	for _, done := range others {
		select {
		case <-done:
		case <-ctx.Done():
			return
		}
	}
}

// claim begins the attempts by partition and returns the ends of those that
// run already.
func (r *Reconciler) claim(ids []fleet.WorkerID) (mine map[fleet.PartitionKey][]*attempt, others []<-chan struct{}) {
	mine = map[fleet.PartitionKey][]*attempt{}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range slices.Sorted(slices.Values(ids)) {
		e := r.entries[id]
		switch {
		case e == nil:
		case e.tried():
			others = append(others, e.attempt.done)
		default:
			e.attempt = &attempt{entry: e, want: e.want, round: e.round, done: make(chan struct{})}
			key := e.want.Partition()
			mine[key] = append(mine[key], e.attempt)
		}
	}
	return mine, others
}

// bringTogether asks all engines of a partition at once and hands the answers
// on one after another: for a short while by id, then as they come, so that a
// silent engine delays no other.
func (r *Reconciler) bringTogether(ctx context.Context, group []*attempt) {
	answers := make(chan *attempt, len(group))
	for _, a := range group {
		go func() {
			if a.err = lacking(a.want, r.sizes.Configured(a.want.Model)); a.err == nil {
				a.blockSize, a.err = r.blockSize(ctx, a.want)
			}
			answers <- a
		}()
	}
	late := time.NewTimer(orderFor)
	defer late.Stop()
	ordered, answered := true, map[*attempt]bool{}
	for len(group) > 0 {
		select {
		case a := <-answers:
			answered[a] = true
		case <-late.C:
			ordered = false
		}
		var silent []*attempt
		for _, a := range group {
			if !answered[a] || ordered && len(silent) > 0 {
				silent = append(silent, a)
				continue
			}
			r.finish(ctx, a)
		}
		group = silent
	}
}

// finish prepares the partition with no lock held and commits the worker if it
// is still wanted as it was.
func (r *Reconciler) finish(ctx context.Context, a *attempt) {
	defer r.end(a)
	e, want, err := a.entry, a.want, a.err
	if err == nil {
		err = mismatch(r.prepare(ctx, want, a.blockSize))
	}
	e.op.Lock()
	defer e.op.Unlock()
	if !r.current(e, a.round) || err != nil && ctx.Err() != nil {
		return // withdrawn, changed or given up meanwhile: whoever did that, or Run, goes on
	}
	if err == nil {
		err = mismatch(r.commit(e, want, a.blockSize))
	}
	if err != nil {
		r.uncommit(e, want.ID)
		r.unlisten(e, nil)
		if _, changed := r.settle(a, core.Incomplete, reasonsOf(err)); changed {
			r.log.Warn("worker incomplete; it is tried again", "worker", want.Name, "err", err)
		}
		return
	}
	reasons := r.listen(e, want)
	if was, changed := r.settle(a, core.Ready, reasons); was != core.Ready || changed {
		r.log.Info("worker ready", "worker", want.Name, "partition", want.Partition().String(), "reasons", reasons)
	}
}

func (r *Reconciler) end(a *attempt) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if a.entry.attempt == a {
		a.entry.attempt = nil
	}
	close(a.done)
}

func (r *Reconciler) current(e *entry, round uint64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return e.round == round
}

// settle shows the outcome of an attempt and plans the next one. changed tells
// that the reasons are others than before.
func (r *Reconciler) settle(a *attempt, lifecycle core.Lifecycle, reasons []string) (was core.Lifecycle, changed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := a.entry
	was, changed = e.lifecycle, !slices.Equal(e.reasons, reasons)
	e.lifecycle, e.reasons = lifecycle, reasons
	if e.round != a.round {
		return was, changed // changed a moment ago: the next attempt is due at once
	}
	e.pending = false
	if len(reasons) == 0 {
		e.failures = 0
		return was, changed
	}
	e.failures++
	e.retryAt = time.Now().Add(pause(e.failures))
	return was, changed
}

// prepare has the partition built.
func (r *Reconciler) prepare(ctx context.Context, want fleet.Record, blockSize int) error {
	if err := r.core.Prepare(ctx, want.Partition(), blockSize); err != nil {
		return fmt.Errorf("prepare partition %s: %w", want.Partition(), err)
	}
	return nil
}

// mismatchError is a block size that contradicts another.
type mismatchError struct{ has, want int }

func (e *mismatchError) Error() string {
	return fmt.Sprintf(blockSizeMismatch+": the worker says %d, the model's configuration %d", e.has, e.want)
}

// blockSize is the model's configuration, else the record's, else the engine's
// own.
func (r *Reconciler) blockSize(ctx context.Context, want fleet.Record) (int, error) {
	configured := r.sizes.Configured(want.Model)
	switch {
	case configured != 0 && want.BlockSize != 0 && configured != want.BlockSize:
		return 0, &mismatchError{has: want.BlockSize, want: configured}
	case configured != 0:
		return configured, nil
	case want.BlockSize != 0:
		return want.BlockSize, nil
	}
	select {
	case r.probes <- struct{}{}:
		defer func() { <-r.probes }()
	case <-ctx.Done():
		return 0, fmt.Errorf(blockSizeUnknown+": not configured, and the engine was not asked: %w", context.Cause(ctx))
	}
	probed, err := r.sizes.Probe(ctx, want.URL)
	if err != nil {
		return 0, fmt.Errorf(blockSizeUnknown+": not configured, and the engine did not tell: %w", err)
	}
	return probed, nil
}

// commit hands a prepared worker to the core. The listeners of a worker that
// moves end before its new partition knows it.
func (r *Reconciler) commit(e *entry, want fleet.Record, blockSize int) error {
	key := want.Partition()
	if e.committed != (fleet.PartitionKey{}) && e.committed != key {
		r.unlisten(e, nil)
	}
	err := r.core.Commit(core.Change{Upserts: []core.Member{{Record: want, BlockSize: blockSize, Lifecycle: core.Ready}}})
	if err != nil {
		return fmt.Errorf("commit to partition %s: %w", key, err)
	}
	e.committed = key
	return nil
}

// listen starts the subscriptions that are missing or have changed and ends
// those that are no longer wanted; the others stay untouched.
func (r *Reconciler) listen(e *entry, want fleet.Record) (reasons []string) {
	e.record.Store(&want)
	wanted := map[uint32]Listening{}
	for rank, endpoint := range want.KVEvents {
		wanted[uint32(rank)] = Listening{
			Partition: want.Partition(), Worker: fleet.Worker{ID: want.ID, Rank: uint32(rank)},
			Engine: want.Engine, Endpoint: endpoint, Replay: want.Replay[rank],
		}
	}
	r.unlisten(e, wanted)
	for rank, l := range wanted {
		if _, ok := e.listening[rank]; ok {
			continue
		}
		if err := r.listeners.Listen(l, e.record.Load); err != nil {
			reasons = append(reasons, fmt.Sprintf("kv_events.%d: %s", rank, err))
			continue
		}
		e.listening[rank] = l
	}
	slices.Sort(reasons)
	return reasons
}

// unlisten ends the subscriptions that are not in keep.
func (r *Reconciler) unlisten(e *entry, keep map[uint32]Listening) {
	for rank, l := range e.listening {
		if keep[rank] == l {
			continue
		}
		r.listeners.Unlisten(l.Partition, l.Worker)
		delete(e.listening, rank)
	}
}
