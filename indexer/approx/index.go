// Package approx is the index that is fed by the router's own decisions, for engines that report nothing and for prompts
// that are hashed as text.
//
// A worker that was given a prompt counts as holding its blocks until TTL after it was last given a prompt that begins
// with them. Beyond the limits those go first that were recorded the longest ago, and of one prompt the tail first. So a
// block never outlives the ones before it.
//
// What is held is in a runtrie.Trie, with a holder for each worker. Per worker and node of the trie there are pins: one
// for each number of leading blocks with which a decision ends, or behind which the worker holds another node. The worker
// holds of a node what its longest pin has. A decision that is recorded again only moves to the end of the list of all
// decisions; one that goes takes with it what no other one keeps. Nothing is noted for a single block.
//
// Time passes by a timer that is set while anything is held: each hundredth of the TTL it lets go of what is over. The
// package starts no goroutine.
//
// Lock: the trie's. A find does not take it.
//
//	x, err := approx.New(approx.Config{TTL: 2 * time.Minute, MaxBlocks: 1 << 20})
//	x.Record(worker, blocks)
//	x.Find(blocks, workers, out)
package approx

import (
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/indexer"
	"github.com/routerd/routerd/indexer/runtrie"
	"github.com/routerd/routerd/kvcache"
)

var _ indexer.Recorder = (*Index)(nil)

// Limits of a Config.
const (
	MinTTL   = 10 * time.Millisecond
	MaxTTL   = 365 * 24 * time.Hour
	MinBytes = 1 << 20
)

// Config bounds what an index holds of all workers together.
type Config struct {
	// TTL is how long a block counts after it was last recorded, MinTTL to MaxTTL; 0 is for ever. A find may see it for a
	// hundredth longer.
	TTL time.Duration
	// MaxBlocks is how many blocks there are at most; each counts once for each worker that holds it. 0 is no limit.
	MaxBlocks int
	// MaxBytes is how much memory they take at most, at least MinBytes; 0 is no limit. Room in pages that are partly used
	// may come on top.
	MaxBytes int
	// Settles has Settle work. It takes 8 to 16 bytes for each decision.
	Settles bool
}

// Index is an index of one partition. It is safe for concurrent use. Make one with New.
type Index struct {
	cfg     Config
	start   time.Time
	secret  uint64 // odd
	trie    *runtrie.Trie
	queries sync.Pool // of *query

	workers sync.Map      // fleet.Worker → *worker
	version atomic.Uint64 // rises after each worker that comes

	// The trie's lock guards the rest.
	pins   pins
	slots  []*worker // by slot; nil where nobody has it
	joined int       // workers, those included that are being emptied
	tables int       // bytes
	blocks int
	timer  *time.Timer
	armed  bool
	closed bool
	path   []runtrie.Stretch // scratch of one record
}

// worker is what the index knows of one worker and rank.
type worker struct {
	decisions atomic.Int64
	slot      uint32

	holder *runtrie.Holder
	nodes  table // the longest pin of each node
	ends   table // pins with a decision, by the last block; only where they can be settled
	blocks int
}

// New returns an empty index. The error is a fleet.FieldError.
func New(cfg Config) (*Index, error) { return newIndex(cfg, runtrie.MaxNodes) }

func newIndex(cfg Config, nodes uint32) (*Index, error) {
	switch {
	case cfg.TTL != 0 && (cfg.TTL < MinTTL || cfg.TTL > MaxTTL):
		return nil, &fleet.FieldError{Field: "ttl", Value: cfg.TTL.String(), Allowed: "0, or " + MinTTL.String() + " to " + MaxTTL.String()}
	case cfg.MaxBlocks < 0:
		return nil, &fleet.FieldError{Field: "max_blocks", Value: strconv.Itoa(cfg.MaxBlocks), Allowed: "0 and more"}
	case cfg.MaxBytes != 0 && cfg.MaxBytes < MinBytes:
		return nil, &fleet.FieldError{Field: "max_bytes", Value: strconv.Itoa(cfg.MaxBytes), Allowed: "0, or " + strconv.Itoa(MinBytes) + " and more"}
	}
	x := &Index{cfg: cfg, start: time.Now(), secret: rand.Uint64() | 1, trie: runtrie.New(nodes)}
	x.version.Store(1)
	return x, nil
}

// Record implements indexer.Recorder. Of a prompt that is longer than all that may be held, only the beginning counts.
func (x *Index) Record(w fleet.Worker, blocks []kvcache.BlockHash) {
	if len(blocks) == 0 {
		return
	}
	if x.cfg.MaxBlocks > 0 {
		blocks = blocks[:min(len(blocks), x.cfg.MaxBlocks)]
	}
	x.trie.Lock()
	defer x.trie.Unlock()
	x.expire(x.now(), all)
	of := x.join(w)
	if of == nil || !x.grow(blocks) {
		return // there is no room for it
	}
	x.keep(of, x.now())
	x.limit()
	x.arm()
	x.verify()
}

// Clear drops all blocks of w.
func (x *Index) Clear(w fleet.Worker) {
	x.trie.Lock()
	defer x.trie.Unlock()
	v, ok := x.workers.Load(w)
	if !ok {
		return
	}
	of := v.(*worker)
	x.workers.Delete(w) // a find that knows its slot finds nothing, until a worker that comes has it
	x.empty(of)
	x.slots[of.slot] = nil
	x.joined--
	x.trie.Leave(of.holder)
	x.trie.Reclaim()
	x.verify()
}

// Remove forgets w wholly.
func (x *Index) Remove(w fleet.Worker) { x.Clear(w) }

// Forget implements indexer.Recorder.
func (x *Index) Forget(w fleet.Worker) { x.Clear(w) }

// Blocks returns how many blocks w holds; all count as being on the device.
func (x *Index) Blocks(w fleet.Worker) (counts kvcache.TierCounts) {
	x.trie.Lock()
	defer x.trie.Unlock()
	x.expire(x.now(), all)
	if v, ok := x.workers.Load(w); ok {
		counts[kvcache.Device] = v.(*worker).blocks
	}
	return counts
}

// Bytes returns how much memory the index takes.
func (x *Index) Bytes() int {
	x.trie.Lock()
	defer x.trie.Unlock()
	x.expire(x.now(), all)
	bytes, _ := x.bytes()
	return bytes
}

// bytes is how much memory the index takes, and how much of that is in use.
func (x *Index) bytes() (bytes, used int) {
	const (
		each = int(unsafe.Sizeof(pin{}))
		// Beside itself, a worker has an entry in a map.
		perWorker = int(unsafe.Sizeof(worker{})) + 128
	)
	bytes, used = int(x.trie.Bytes()), int(x.trie.Used())
	more := x.tables + perWorker*x.joined
	return bytes + more + each*pinPage*len(x.pins.pages), used + more + each*x.pins.used
}

// Close ends the timer. What is recorded after it stays until it is in the way.
func (x *Index) Close() {
	x.trie.Lock()
	defer x.trie.Unlock()
	x.closed = true
	if x.timer != nil {
		x.timer.Stop()
	}
}

func (x *Index) now() time.Duration { return time.Since(x.start) }

// join returns what is known of w, who becomes known, or nil where there are too many.
func (x *Index) join(w fleet.Worker) *worker {
	if v, ok := x.workers.Load(w); ok {
		return v.(*worker)
	}
	h, err := x.trie.Join()
	if err != nil {
		return nil
	}
	of := &worker{holder: h, slot: h.Slot(), nodes: table{total: &x.tables}, ends: table{total: &x.tables}}
	x.joined++
	for int(of.slot) >= len(x.slots) {
		x.slots = append(x.slots, nil)
	}
	x.slots[of.slot] = of
	x.workers.Store(w, of)
	x.version.Add(1)
	return of
}
