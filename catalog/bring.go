package catalog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/fleet"
)

// bringAll tries to make workers ready, each partition on its own goroutine:
// the slow policy of one delays no other.
func (r *Reconciler) bringAll(ctx context.Context, ids []fleet.WorkerID) {
	byPartition := map[fleet.PartitionKey][]fleet.WorkerID{}
	r.mu.Lock()
	for _, id := range ids {
		if e := r.entries[id]; e != nil {
			byPartition[e.want.Partition()] = append(byPartition[e.want.Partition()], id)
		}
	}
	r.mu.Unlock()
	var all sync.WaitGroup
	for _, group := range byPartition {
		all.Go(func() {
			for _, id := range group {
				r.bring(ctx, id)
			}
		})
	}
	all.Wait()
}

// bring prepares one worker with no lock held and commits it if it is still
// wanted as it was.
func (r *Reconciler) bring(ctx context.Context, id fleet.WorkerID) {
	r.mu.Lock()
	e := r.entries[id]
	if e == nil {
		r.mu.Unlock()
		return
	}
	want, round := e.want, e.round
	r.mu.Unlock()

	blockSize, err := r.prepare(ctx, want)

	e.op.Lock()
	defer e.op.Unlock()
	if !r.current(e, round) || errors.Is(err, context.Canceled) {
		return // withdrawn or changed meanwhile: whoever did that goes on
	}
	if err == nil {
		err = r.commit(e, want, blockSize)
	}
	if err != nil {
		r.uncommit(e, want.ID)
		r.unlisten(e, nil)
		if _, changed := r.settle(e, core.Incomplete, []string{err.Error()}); changed {
			r.log.Warn("worker incomplete; it is tried again", "worker", want.Name, "err", err)
		}
		return
	}
	reasons := r.listen(e, want, blockSize)
	if was, changed := r.settle(e, core.Ready, reasons); was != core.Ready || changed {
		r.log.Info("worker ready", "worker", want.Name, "partition", want.Partition().String(), "reasons", reasons)
	}
}

func (r *Reconciler) current(e *entry, round uint64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return e.round == round
}

// settle shows the outcome of an attempt and plans the next one. changed tells
// that the reasons are others than before.
func (r *Reconciler) settle(e *entry, lifecycle core.Lifecycle, reasons []string) (was core.Lifecycle, changed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	was, changed = e.lifecycle, !slices.Equal(e.reasons, reasons)
	e.lifecycle, e.reasons = lifecycle, reasons
	if len(reasons) == 0 {
		e.failures = 0
		return was, changed
	}
	e.failures++
	e.retryAt = time.Now().Add(pause(e.failures))
	return was, changed
}

// prepare finds the block size and has the partition built.
func (r *Reconciler) prepare(ctx context.Context, want fleet.Record) (blockSize int, err error) {
	blockSize, err = r.blockSize(ctx, want)
	if err != nil {
		return 0, err
	}
	if err := r.core.Prepare(ctx, want.Partition(), blockSize); err != nil {
		return 0, fmt.Errorf("prepare partition %s: %w", want.Partition(), err)
	}
	return blockSize, nil
}

// mismatchError is a block size that contradicts another.
type mismatchError struct{ has, want int }

func (e *mismatchError) Error() string {
	return fmt.Sprintf("block_size_mismatch: the worker says %d, the model's configuration %d", e.has, e.want)
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
	probed, err := r.sizes.Probe(ctx, want.URL)
	if err != nil {
		return 0, fmt.Errorf("block_size_unknown: not configured, and the engine did not tell: %w", err)
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
func (r *Reconciler) listen(e *entry, want fleet.Record, blockSize int) (reasons []string) {
	wanted := map[uint32]Listening{}
	for rank, endpoint := range want.KVEvents {
		wanted[uint32(rank)] = Listening{
			Partition: want.Partition(), Worker: fleet.Worker{ID: want.ID, Rank: uint32(rank)}, Name: want.Name,
			Engine: want.Engine, BlockSize: blockSize, Endpoint: endpoint, Replay: want.Replay[rank],
			DPStart: want.DPStart, DPSize: want.DPSize, Adapters: numbered(want.Adapters),
		}
	}
	r.unlisten(e, wanted)
	for rank, l := range wanted {
		if _, ok := e.listening[rank]; ok {
			continue
		}
		if err := r.listeners.Listen(l); err != nil {
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

func numbered(adapters []fleet.Adapter) string {
	byID := slices.SortedFunc(slices.Values(adapters), func(a, b fleet.Adapter) int { return cmp.Compare(a.ID, b.ID) })
	var b strings.Builder
	for _, a := range byID {
		if a.ID != 0 {
			fmt.Fprintf(&b, "%d=%s\n", a.ID, a.Name)
		}
	}
	return b.String()
}
