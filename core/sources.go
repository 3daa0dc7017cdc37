package core

import (
	"context"
	"errors"
	"time"

	"github.com/routerd/routerd/core/affinity"
	"github.com/routerd/routerd/core/load"
	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/core/reserve"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/kvcache"
)

// SelectionPolicySource resolves a rule to the policy that decides for it.
type SelectionPolicySource interface {
	// Resolve returns the handle for a partition and a request class (empty for
	// none). It is called when a partition is prepared and, for a class, at the
	// class's first request; the core keeps what it returns until it is told to
	// ask again (SelectionCore.ResolvePolicies). The name "default"
	// always exists, so that an error means the source is not able to answer.
	Resolve(key fleet.PartitionKey, class string) (*policy.Handle, error)
}

// KvIndexSource opens the index of a partition.
type KvIndexSource interface {
	// Open returns the partition's index. The same key gives the same index
	// whenever it is asked; a source that is a Forgetter, until it has forgotten it.
	Open(key fleet.PartitionKey, blockSize int) (KvIndex, error)
}

// KvIndex tells who holds which prefix. Safe for concurrent use; it runs on the
// caller's goroutine.
type KvIndex interface {
	// Find writes for each worker what it holds of the prompt given by its
	// local block hashes. workers and out have the same length; Find keeps
	// neither and writes every element of out.
	Find(blocks []kvcache.BlockHash, workers []fleet.Worker, out []kvcache.Overlap)
	// Record hears of each booking: the rank is about to hold the prompt given by
	// its local block hashes. An index may learn from it. exact tells that they are
	// those of the prompt's tokens, which its engine will tell of, where it tells
	// anything; else they are of its text. It keeps nothing of blocks and must not
	// block.
	Record(w fleet.Worker, blocks []kvcache.BlockHash, exact bool)
	// Forget voids what was recorded for a rank that has left.
	Forget(w fleet.Worker)
	// Trusted tells whether the rank's event stream lost nothing.
	Trusted(w fleet.Worker) bool
}

// SelectionHost is what the process around the core offers it. Zero fields are
// filled with parts that do nothing.
type SelectionHost struct {
	Load        Load
	Eligibility Eligibility
	SharedCache SharedCache
	Telemetry   Telemetry
	Replication Replication
}

// Load knows what the engines report. Safe for concurrent use; calls must not
// block, for they are made for each candidate of each decision.
type Load interface {
	// Report is the engine's last report of a rank; ok is false when there is none.
	Report(w fleet.Worker) (report load.Report, ok bool)
}

// Eligibility is what else the process knows of who may serve. Safe for
// concurrent use; it must not block.
type Eligibility interface {
	// Narrow clears keep[i] where workers[i] must not serve the request now. It
	// keeps neither slice and writes nothing but false.
	Narrow(req *Request, workers []fleet.Worker, keep []bool)
}

// SharedCache tells which blocks of a prompt an external cache holds, that every
// worker can read from.
type SharedCache interface {
	// Hits appends to out the ranges of block positions that are held, sorted and
	// disjoint. An error means that nobody knows: the selection goes on without.
	// ErrNoSharedCache means that there is none, which it says of no blocks too. It keeps nothing and returns within
	// its own deadline.
	Hits(ctx context.Context, key fleet.PartitionKey, blocks []kvcache.SequenceHash, out []kvcache.BlockRange) ([]kvcache.BlockRange, error)
}

// ErrNoSharedCache is what a SharedCache answers that is switched off.
var ErrNoSharedCache = errors.New("there is no shared cache")

// Replication tells other routers what this one decided. Calls come from many
// goroutines, in order for one session, never under a lock, and must not block.
type Replication interface {
	// Bound hears of a session that was bound, and of one whose idle time has
	// begun anew.
	Bound(key fleet.PartitionKey, e affinity.Event)
	// Booked, PrefillCompleted and Freed hear of the bookings.
	Booked(key reserve.Key, d load.Demand)
	PrefillCompleted(key reserve.Key)
	Freed(key reserve.Key)
}

// Telemetry hears what the core does. Calls come from many goroutines at once,
// never under a lock, and must not block.
type Telemetry interface {
	// Decided hears of each selection that ended, by answer or by error. It must
	// not keep e.
	Decided(e *DecisionEvent)
	// Released hears of each reservation that ended. It must not keep e.
	Released(e *ReleaseEvent)
}

// DecisionEvent describes a selection that ended. All strings but Partition are
// from bounded sets.
type DecisionEvent struct {
	Partition fleet.PartitionKey
	Kind      Kind
	Surface   string
	// Policy and Revision were asked last; Canary tells that it was as a canary.
	Policy   string
	Revision int
	Canary   bool
	// Code is empty for an answer, CodeCancelled where the caller gave up before
	// there was one.
	Code Code
	// Class is the queue's class of a request that has waited or got an error, one
	// of the configuration's; empty for the others.
	Class string
	By    policy.By
	// FaultReason and FaultCode are empty when no stage faulted.
	FaultReason, FaultCode string
	Candidates             int
	// Conflicts counts attempts that another booking made void; Turn tells
	// whether the decision took a turn.
	Conflicts int
	Turn      bool
	// Fuel and Deciding are what the revision used and the time it took, over all
	// attempts at which it was the one that was asked; Elapsed is the time from
	// start to end.
	Fuel     uint64
	Deciding time.Duration
	Elapsed  time.Duration
	// Waited is the part of Elapsed in which the request waited for a rank that is
	// not busy, or for its session.
	Waited time.Duration
	// CachedBest and CachedSelected are the prompt tokens that the best eligible
	// worker and the selected one need not prefill, both 0 where the index was not
	// asked. LoadSpread is by how many active requests the busiest eligible rank is
	// above the mean of all, before the decision. All three are 0 where there was
	// no answer, or a pin left nothing to choose.
	CachedBest, CachedSelected int64
	LoadSpread                 float64
	// Recorded tells that an answer has a decision record: at high rates only a
	// sample has.
	Recorded bool
}

// ReleaseEvent describes a reservation that ended.
type ReleaseEvent struct {
	Key     reserve.Key
	Outcome reserve.Outcome
	// Held is the time from booking to release.
	Held time.Duration
}

type noTelemetry struct{}

func (noTelemetry) Decided(*DecisionEvent) {}
func (noTelemetry) Released(*ReleaseEvent) {}

// NoIndex is the index source of a router without cache knowledge.
type NoIndex struct{}

// Open returns an index that knows nothing.
func (NoIndex) Open(fleet.PartitionKey, int) (KvIndex, error) { return NoIndex{}, nil }

// Find writes zeroes.
func (NoIndex) Find(_ []kvcache.BlockHash, _ []fleet.Worker, out []kvcache.Overlap) { clear(out) }

// Record learns nothing.
func (NoIndex) Record(fleet.Worker, []kvcache.BlockHash, bool) {}

// Forget has nothing to forget.
func (NoIndex) Forget(fleet.Worker) {}

// Trusted is false.
func (NoIndex) Trusted(fleet.Worker) bool { return false }

var (
	_ KvIndexSource = NoIndex{}
	_ KvIndex       = NoIndex{}
)
