package indexer

import (
	"iter"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/kvcache"
)

// Snapshots hands an index out, worker by worker, and takes it in again.
type Snapshots interface {
	// Workers returns the workers that the index knows, by id and rank.
	Workers() []fleet.Worker

	// Snapshot returns what is known of w at one moment, and false for an unknown worker. Calls for w wait only while
	// its tables are copied.
	Snapshot(w fleet.Worker) (Snapshot, bool)

	// Restore repeats the changes of a snapshot for w, with what w holds left in place, and sets the rest to the
	// snapshot's. On a worker that holds nothing, Find, Blocks and Hashes then answer what they did at the source, and
	// later events have the same effect. A change whose parent is not known is left out; the blocks of those are
	// counted. Nothing of the arguments is kept.
	Restore(w fleet.Worker, rest Rest, changes iter.Seq[Change]) (lost int)
}

// Snapshot is one worker and rank of an index at one moment. It is independent of the index.
type Snapshot struct {
	Worker fleet.Worker
	Rest   Rest
	// Changes make the worker's blocks when they are repeated in order: parents come first, the tiers one after the
	// other. Blocks whose engine no longer holds what is before them are told by storing that too, under hashes that
	// the worker does not use, and removing it at the end of the tier. A change belongs to the loop until its next turn.
	Changes iter.Seq[Change]
}

// Change is a store, or a removal where Removed is not empty.
type Change struct {
	Tier    kvcache.Tier
	Removed []kvcache.EngineHash

	Parent    kvcache.EngineHash // meaningful when HasParent; else the blocks begin a prompt
	HasParent bool
	Salt      uint64 // what the cache salt of a chain adds to the hash seed; of chains that begin here
	Blocks    []Block
}

// Block is a block as the engine names it, with the content by which it goes on from the one before.
type Block struct {
	Hash  kvcache.EngineHash
	Local kvcache.BlockHash
}

// Rest is what an index knows of a worker beside its blocks.
type Rest struct {
	MainKnown bool // whether the cache group that counts is known
	Main      int32
	Others    []int32 // groups that do not count, ascending
	Full      bool    // a block of the right size was stored
	Evicted   bool    // the index gave up blocks to stay below its cap
	// Opaque are the hashes, ascending, that the engine holds on a tier and that cannot be indexed.
	Opaque [kvcache.Tiers][]kvcache.EngineHash
}

// None tells whether there is nothing to know.
func (r *Rest) None() bool {
	for _, hashes := range r.Opaque {
		if len(hashes) > 0 {
			return false
		}
	}
	return !r.MainKnown && len(r.Others) == 0 && !r.Full && !r.Evicted
}
