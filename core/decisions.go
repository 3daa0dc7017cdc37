package core

import (
	"strings"
	"sync"
	"time"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/fleet"
)

// DecisionLog keeps the records of the last decisions within a bound of
// entries and one of bytes, at high rates of a sample of them. Writing copies columns, never prompts or tokens,
// and takes one short lock; reading renders outside of it. Safe for concurrent
// use.
type DecisionLog struct {
	maxEntries, maxBytes int
	spare                sync.Pool // *entry, whose buffers are reused
	sampler              sampler

	mu    sync.Mutex // guards all below, and readers of every entry
	ring  []*entry   // oldest at head
	head  int
	size  int
	bytes int
}

func newDecisionLog(c *Config) *DecisionLog {
	return &DecisionLog{
		maxEntries: c.DecisionEntries, maxBytes: c.DecisionBytes, ring: make([]*entry, c.DecisionEntries),
		sampler: newSampler(c.DecisionRate),
	}
}

// add records the final attempt of a selection, unless there are too many. ended
// is the fault of a stage that has ended the request without a pick; nil where
// there is one.
func (l *DecisionLog) add(a *attempt, elapsed time.Duration, ended *policy.Fault) (recorded bool) {
	if !l.sampler.take(a.started.Add(elapsed)) {
		return false
	}
	e, ok := l.spare.Get().(*entry)
	if !ok || e.oversized(a.table.Len()) {
		e = &entry{}
	}
	e.fill(a, elapsed)
	if ended != nil {
		e.by, e.pick, e.fault = "", fleet.Worker{}, ended
	}
	if old := l.put(e); old != nil {
		l.spare.Put(old)
	}
	return true
}

// put adds an entry and evicts the oldest until both bounds hold. It returns one
// that nobody reads any more, to be filled again; nil when there is none.
func (l *DecisionLog) put(e *entry) (unused *entry) {
	e.cost = e.bytes()
	if e.cost > l.maxBytes {
		return e
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.size == l.maxEntries || l.bytes+e.cost > l.maxBytes {
		old := l.ring[l.head]
		l.ring[l.head] = nil
		l.head = (l.head + 1) % len(l.ring)
		l.size--
		l.bytes -= old.cost
		if old.readers == 0 {
			unused = old
		}
	}
	l.ring[(l.head+l.size)%len(l.ring)] = e
	l.size++
	l.bytes += e.cost
	return unused
}

// DecisionFilter narrows a list of decisions; zero fields match all.
type DecisionFilter struct {
	Partition fleet.PartitionKey // a zero field matches all
	Policy    string
	By        string
	Worker    string // name
	RequestID string
	// Limit bounds the list; 0 means all.
	Limit int
}

// List returns the records without their rows, those first that were decided last:
// one that has waited stands by when it went on, not by when it came (At).
func (l *DecisionLog) List(f DecisionFilter) []DecisionRecord {
	found := l.hold(f.Limit, func(e *entry) bool { return e.matches(&f) })
	defer l.letGo(found)
	out := make([]DecisionRecord, len(found))
	for i, e := range found {
		out[i] = e.record()
	}
	return out
}

// Get returns the record of a decision with its rows. A request's id finds the
// newest decision of that request.
func (l *DecisionLog) Get(id string) (DecisionRecord, bool) {
	found := l.hold(1, func(e *entry) bool { return e.named(id) })
	defer l.letGo(found)
	if len(found) == 0 {
		return DecisionRecord{}, false
	}
	r := found[0].record()
	r.Rows = found[0].recordedRows()
	return r, true
}

// Recorded is a decision in the form in which it can be made again.
type Recorded struct {
	// Record has no rows.
	Record DecisionRecord
	// Frame is what the decision was made from. It is a copy, and the caller's.
	Frame *policy.Recording
}

// Recording returns the decision that Get finds, to be made again.
func (l *DecisionLog) Recording(id string) (Recorded, bool) {
	found := l.hold(1, func(e *entry) bool { return e.named(id) })
	defer l.letGo(found)
	if len(found) == 0 {
		return Recorded{}, false
	}
	return found[0].recorded(&policy.Table{}), true
}

// Recordings returns the decisions that List finds, to be made again: up to as
// many bytes as the log holds.
func (l *DecisionLog) Recordings(f DecisionFilter) []Recorded {
	found := l.hold(f.Limit, func(e *entry) bool { return e.matches(&f) })
	defer l.letGo(found)
	out := make([]Recorded, len(found))
	var t policy.Table
	for i, e := range found {
		out[i] = e.recorded(&t)
	}
	return out
}

// Len is the number of records that are kept.
func (l *DecisionLog) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.size
}

// hold finds entries, the newest first, at most limit unless that is 0. They
// stay as they are until the caller lets them go.
func (l *DecisionLog) hold(limit int, match func(*entry) bool) (found []*entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := l.size - 1; i >= 0; i-- {
		e := l.ring[(l.head+i)%len(l.ring)]
		if !match(e) {
			continue
		}
		e.readers++
		found = append(found, e)
		if len(found) == limit {
			break
		}
	}
	return found
}

func (l *DecisionLog) letGo(entries []*entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range entries {
		e.readers--
	}
}

func (e *entry) matches(f *DecisionFilter) bool {
	return (f.Partition.Model == "" || f.Partition.Model == e.partition.Model) &&
		(f.Partition.Group == "" || f.Partition.Group == e.partition.Group) &&
		(f.Policy == "" || f.Policy == e.asked.policy) &&
		(f.By == "" || f.By == string(e.by)) &&
		(f.Worker == "" || f.Worker == e.name) &&
		(f.RequestID == "" || f.RequestID == e.requestID())
}

// named tells whether a decision's or a request's id is this one's.
func (e *entry) named(id string) bool { return e.id == id || e.requestID() == id }

// requestID is the part of the id before the last dot; "d" for a request that
// had none.
func (e *entry) requestID() string {
	return e.id[:max(strings.LastIndexByte(e.id, '.'), 0)]
}
