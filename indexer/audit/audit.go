// Package audit finds engines whose blocks are not those that are asked for.
//
// A prompt that a rank was given is stored by its engine, which tells so. An engine that goes on telling of blocks,
// while of some prompts in a row not even the first block comes, hashes other tokens, or under another name, than the
// router does: another chat template, adapters or salts with other names, Eagle on one side alone. Without an audit
// nobody sees that, for all overlaps are 0 and nothing fails.
package audit

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/kvcache"
)

const (
	// patience is how long the first block of a prompt may be under way: the engine may have a queue.
	patience = time.Minute
	// limit is of how many prompts in a row it may be missing.
	limit = 5
	// pause is how long a rank is left alone after a prompt whose block came.
	pause = 10 * time.Second
)

// Index is what is asked of an index; see exact.Index.
type Index interface {
	Find(blocks []kvcache.BlockHash, workers []fleet.Worker, out []kvcache.Overlap)
	GaveUp(w fleet.Worker) bool
}

// Audit watches the ranks of one index, for each one prompt at a time. It is safe for concurrent use. The zero value
// is not ready: see New.
type Audit struct {
	index Index
	tell  func(w fleet.Worker, mismatch bool)
	ranks sync.Map // fleet.Worker → *rank
	found atomic.Int64
}

// rank is what is known of one.
type rank struct {
	next     atomic.Int64 // no prompt is watched before, in Unix nanoseconds
	watching atomic.Bool
	mismatch atomic.Bool

	mu     sync.Mutex // guards all below, and the changes of the above
	first  [1]kvcache.BlockHash
	since  time.Time
	stored bool // the engine told of blocks since
	missed int  // prompts in a row
	gone   bool

	// scratch of look
	who  [1]fleet.Worker
	held [1]kvcache.Overlap
}

// New returns an audit of an index. tell, where it is not nil, hears of each rank whose standing changes; it is called
// under a lock and must not call back.
func New(index Index, tell func(w fleet.Worker, mismatch bool)) *Audit {
	return &Audit{index: index, tell: tell}
}

// Given notes that a rank got a prompt, told by its local block hashes, of which it keeps nothing.
func (a *Audit) Given(w fleet.Worker, blocks []kvcache.BlockHash, now time.Time) {
	if len(blocks) == 0 {
		return
	}
	known, ok := a.ranks.Load(w)
	if !ok {
		known, _ = a.ranks.LoadOrStore(w, &rank{})
	}
	r := known.(*rank)
	if now.UnixNano() < r.next.Load() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.watching.Load() {
		if now.Sub(r.since) < patience {
			return
		}
		a.missing(w, r)
	}
	r.first[0], r.since, r.stored = blocks[0], now, false
	r.watching.Store(true)
	a.look(w, r, now)
}

// Stored notes that a rank's engine told of blocks, which the index has by now.
func (a *Audit) Stored(w fleet.Worker, now time.Time) {
	known, ok := a.ranks.Load(w)
	if !ok {
		return
	}
	r := known.(*rank)
	if !r.watching.Load() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stored = true
	a.look(w, r, now)
}

// Mismatch tells whether a rank's blocks are not those that are asked for.
func (a *Audit) Mismatch(w fleet.Worker) bool {
	r, ok := a.ranks.Load(w)
	return ok && r.(*rank).mismatch.Load()
}

// Mismatches is of how many ranks that is true.
func (a *Audit) Mismatches() int { return int(a.found.Load()) }

// Forget ends the watch over a rank that has left.
func (a *Audit) Forget(w fleet.Worker) {
	known, ok := a.ranks.LoadAndDelete(w)
	if !ok {
		return
	}
	r := known.(*rank)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.gone = true; r.mismatch.Swap(false) {
		a.found.Add(-1)
	}
}

// look ends the watch where the block is there.
func (a *Audit) look(w fleet.Worker, r *rank, now time.Time) {
	r.who[0] = w
	a.index.Find(r.first[:], r.who[:], r.held[:])
	if r.held[0] == (kvcache.Overlap{}) {
		return
	}
	r.missed = 0
	r.watching.Store(false)
	r.next.Store(now.Add(pause).UnixNano())
	a.judge(w, r, false)
}

// missing ends the watch over a prompt whose block did not come. That says nothing where no block came at all, or where
// the index gave up blocks: the engine may have it, and does not store it anew.
func (a *Audit) missing(w fleet.Worker, r *rank) {
	if !r.stored || a.index.GaveUp(w) {
		return
	}
	if r.missed++; r.missed >= limit {
		a.judge(w, r, true)
	}
}

func (a *Audit) judge(w fleet.Worker, r *rank, mismatch bool) {
	if r.gone || r.mismatch.Swap(mismatch) == mismatch {
		return
	}
	if mismatch {
		a.found.Add(1)
	} else {
		a.found.Add(-1)
	}
	if a.tell != nil {
		a.tell(w, mismatch)
	}
}
