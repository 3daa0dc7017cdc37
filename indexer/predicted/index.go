// Package predicted is an index that is fed by events and, until those come, by the router's own decisions.
//
// A worker that was given a prompt is about to hold it, but its events come only when it has computed the blocks. So a
// decision counts at once, as blocks on the device, beside what the events told. It counts until they confirm it: until
// one stores the last of its blocks on the device and all are there. From then on the worker's events alone count, so
// that an eviction shows at once. What is not confirmed is void after the TTL. A decision whose blocks are all on the
// device is not recorded.
//
// The package starts no goroutine. Locks: a worker's in the index of events → the decisions'. Find takes none.
//
//	x, err := predicted.New(exact.New(16), approx.Config{TTL: 2 * time.Second})
//	x.Record(worker, blocks)
//	x.Find(blocks, workers, out)
package predicted

import (
	"sync"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/indexer"
	"github.com/routerd/routerd/indexer/approx"
	"github.com/routerd/routerd/kvcache"
)

var (
	_ indexer.Indexer  = (*Index)(nil)
	_ indexer.Recorder = (*Index)(nil)
)

// Events is an index that is fed by events and tells what they store, as exact.Index does.
type Events interface {
	indexer.Indexer
	OnStored(do func(w fleet.Worker, t kvcache.Tier, blocks []kvcache.BlockHash))
}

// Index is an index of events with the decisions that they have not confirmed. It is safe for concurrent use. Make one
// with New.
type Index struct {
	Events
	decisions *approx.Index
	scratch   sync.Pool // of *scratch
}

// scratch is what one find needs.
type scratch struct {
	own []kvcache.Overlap
	one [1]fleet.Worker
	out [1]kvcache.Overlap
}

// New returns an index that counts decisions beside events, for as long and as many as the limits say. Nobody else may
// have been told what the events store, and none may have come. The error is a fleet.FieldError.
func New(events Events, limits approx.Config) (*Index, error) {
	if limits.TTL == 0 {
		return nil, &fleet.FieldError{Field: "ttl", Value: "0", Allowed: approx.MinTTL.String() + " to " + approx.MaxTTL.String()}
	}
	limits.Settles = true
	decisions, err := approx.New(limits)
	if err != nil {
		return nil, err
	}
	x := &Index{Events: events, decisions: decisions}
	events.OnStored(x.onStored)
	return x, nil
}

// Find implements indexer.Indexer: it tells of each worker the most that its events or one of its decisions have. What a
// decision has counts as being on the device, whatever the events say.
func (x *Index) Find(blocks []kvcache.BlockHash, workers []fleet.Worker, out []kvcache.Overlap) {
	s := x.take()
	for len(s.own) < len(workers) {
		s.own = append(s.own, kvcache.Overlap{})
	}
	// The decisions first: what is confirmed meanwhile, the events have.
	x.decisions.Find(blocks, workers, s.own)
	x.Events.Find(blocks, workers, out)
	for i := range workers {
		if own := s.own[i].Device; own > out[i].Device {
			out[i] = better(out[i], own)
		}
	}
	x.scratch.Put(s)
}

// better is an overlap of which more is on the device; slower tiers have what is beyond that.
func better(o kvcache.Overlap, device uint32) kvcache.Overlap {
	more := device - o.Device
	o.Device = device
	for _, slower := range []*uint32{&o.Host, &o.Disk, &o.Shared} {
		n := min(more, *slower)
		*slower -= n
		more -= n
	}
	return o
}

// Record implements indexer.Recorder.
func (x *Index) Record(w fleet.Worker, blocks []kvcache.BlockHash) {
	if len(blocks) == 0 || x.holds(w, blocks) {
		return
	}
	x.decisions.Record(w, blocks)
	if x.holds(w, blocks) { // the events came meanwhile and found nothing to confirm
		x.onStored(w, kvcache.Device, blocks[len(blocks)-1:])
	}
}

// Forget implements indexer.Recorder. What the events told stays.
func (x *Index) Forget(w fleet.Worker) { x.decisions.Forget(w) }

// Apply implements indexer.Indexer.
func (x *Index) Apply(w fleet.Worker, events []kvcache.Event) kvcache.Applied {
	applied := x.Events.Apply(w, events)
	if applied.Cleared > 0 {
		x.decisions.Forget(w)
	}
	return applied
}

// Clear implements indexer.Indexer.
func (x *Index) Clear(w fleet.Worker) {
	x.Events.Clear(w)
	x.decisions.Forget(w)
}

// Remove implements indexer.Indexer.
func (x *Index) Remove(w fleet.Worker) {
	x.Events.Remove(w)
	x.decisions.Forget(w)
}

// Bytes returns how much memory the decisions take.
func (x *Index) Bytes() int { return x.decisions.Bytes() }

// Close ends the timer of the decisions.
func (x *Index) Close() { x.decisions.Close() }

// onStored lets go of the decisions that a store confirms.
func (x *Index) onStored(w fleet.Worker, t kvcache.Tier, blocks []kvcache.BlockHash) {
	if t == kvcache.Device {
		x.decisions.Settle(w, blocks, func(path []kvcache.BlockHash) bool { return x.holds(w, path) })
	}
}

// holds tells whether a worker has all of a prompt on its device, by its events.
func (x *Index) holds(w fleet.Worker, blocks []kvcache.BlockHash) bool {
	s := x.take()
	defer x.scratch.Put(s)
	s.one[0] = w
	x.Events.Find(blocks, s.one[:], s.out[:])
	return int(s.out[0].Device) == len(blocks)
}

func (x *Index) take() *scratch {
	if s, ok := x.scratch.Get().(*scratch); ok {
		return s
	}
	return &scratch{}
}
