package bench_test

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/indexer"
	"github.com/routerd/routerd/kvcache"
)

// indexFeed is a phase of a plan, or the part of it that some workers have, as
// an ingress would hand it on: one event a call. What it is made from lies in the
// order in which it is read, outside of the heap, so that it makes the garbage
// collector neither work nor wait.
type indexFeed struct {
	events []feedEvent
	names  []kvcache.EngineHash // numbers, which point at nothing
	tokens []uint32
}

// feedEvent is an event without its blocks. It has no pointers.
type feedEvent struct {
	worker             fleet.WorkerID
	parent             uint64
	n                  int32
	removal, hasParent bool
}

// workerID names a worker of a plan.
func workerID(worker int) fleet.Worker { return fleet.Worker{ID: fleet.WorkerID(worker + 1)} }

// newIndexFeed takes the steps of a phase whose workers mine picks.
func newIndexFeed(p indexPlan, phase int, mine func(worker int) bool) (*indexFeed, error) {
	var count struct{ events, names, tokens int }
	each := func(do func(worker int, s planStep)) {
		for i := range p.steps(phase) {
			s := p.step(phase, i)
			if worker, _, _ := p.sequence(s.sequence); mine(worker) {
				do(worker, s)
			}
		}
	}
	each(func(_ int, s planStep) {
		count.events++
		count.names += s.to - s.from
		if !s.removal {
			count.tokens += (s.to - s.from) * planBlockSize
		}
	})
	f := &indexFeed{}
	var err error
	if f.events, err = offHeap[feedEvent](count.events); err != nil {
		return nil, err
	}
	if f.names, err = offHeap[kvcache.EngineHash](count.names); err != nil {
		return nil, err
	}
	if f.tokens, err = offHeap[uint32](count.tokens); err != nil {
		return nil, err
	}
	each(func(worker int, s planStep) { f.add(p, worker, s) })
	return f, nil
}

func (f *indexFeed) add(p indexPlan, worker int, s planStep) {
	e := feedEvent{worker: workerID(worker).ID, n: int32(s.to - s.from), removal: s.removal}
	if s.removal {
		for pos := s.to - 1; pos >= s.from; pos-- {
			b, i := p.block(s.sequence, pos)
			f.names = append(f.names, kvcache.NumberHash(b.name(i)))
		}
	} else {
		if s.from > 0 {
			b, i := p.block(s.sequence, s.from-1)
			e.parent, e.hasParent = b.name(i), true
		}
		for pos := s.from; pos < s.to; pos++ {
			b, i := p.block(s.sequence, pos)
			f.names = append(f.names, kvcache.NumberHash(b.name(i)))
			f.tokens = appendTokens(f.tokens, b.content(i))
		}
	}
	f.events = append(f.events, e)
}

// blocks is how many its events name.
func (f *indexFeed) blocks() int { return len(f.names) }

// hash hashes the tokens of all stores, an event at a time, and does nothing with the hashes.
func (f *indexFeed) hash() {
	var hashes []kvcache.BlockHash
	how, tokens := kvcache.Hashing{Seed: kvcache.Seed("", "")}, f.tokens
	for i := range f.events {
		if e := &f.events[i]; !e.removal {
			covered := int(e.n) * planBlockSize
			hashes, _ = how.Blocks(hashes, tokens[:covered], planBlockSize) // the size is good
			tokens = tokens[covered:]
		}
	}
}

// apply feeds an index. It ends at the first event that is not taken whole.
func (f *indexFeed) apply(x indexer.Feed) error {
	var one [1]kvcache.Event
	names, tokens := f.names, f.tokens
	for i := range f.events {
		e := &f.events[i]
		hashes := names[:e.n]
		names = names[e.n:]
		one[0] = kvcache.Event{Kind: kvcache.Removed, Hashes: hashes}
		if !e.removal {
			covered := int(e.n) * planBlockSize
			one[0] = kvcache.Event{
				Kind: kvcache.Stored, Hashes: hashes, BlockSize: planBlockSize, Tokens: tokens[:covered],
				Parent: kvcache.NumberHash(e.parent), HasParent: e.hasParent,
			}
			tokens = tokens[covered:]
		}
		if got := x.Apply(fleet.Worker{ID: e.worker}, one[:]); got.Stored+got.Removed != int(e.n) {
			return fmt.Errorf("event %d of worker %d: %+v, want %d blocks taken", i, e.worker, got, e.n)
		}
	}
	return nil
}

// offHeap is an empty slice with room for n elements, which must not point at
// anything. It is there for the life of the process.
func offHeap[T any](n int) ([]T, error) {
	if n == 0 {
		return nil, nil
	}
	var zero T
	size := n * int(unsafe.Sizeof(zero))
	room, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE|unix.MAP_POPULATE)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes: %w", size, err)
	}
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(room))), n)[:0], nil
}
