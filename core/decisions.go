package core

import (
	"strings"
	"sync"
	"time"

	"github.com/routerd/routerd/fleet"
)

// DecisionLog keeps the records of the last decisions within a bound of
// entries and one of bytes. Writing copies columns, never prompts or tokens.
// Safe for concurrent use.
type DecisionLog struct {
	maxEntries, maxBytes int

	mu    sync.Mutex // guards all below
	ring  []*entry   // oldest at head
	head  int
	size  int
	bytes int
	spare []*entry // whose buffers are reused
}

func newDecisionLog(maxEntries, maxBytes int) *DecisionLog {
	return &DecisionLog{maxEntries: maxEntries, maxBytes: maxBytes, ring: make([]*entry, maxEntries)}
}

// add records the final attempt of a selection.
func (l *DecisionLog) add(p *Partition, a *attempt, sel *Selection, elapsed time.Duration) {
	e := l.take()
	e.fill(p, a, sel, elapsed)
	l.put(e)
}

// take returns an entry to fill, with the buffers of an evicted one if there
// is any.
func (l *DecisionLog) take() *entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(l.spare)
	if n == 0 {
		return &entry{}
	}
	e := l.spare[n-1]
	l.spare = l.spare[:n-1]
	return e
}

// put adds an entry and evicts the oldest until both bounds hold.
func (l *DecisionLog) put(e *entry) {
	cost := e.bytes()
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.size > 0 && (l.size == l.maxEntries || l.bytes+cost > l.maxBytes) {
		old := l.ring[l.head]
		l.ring[l.head] = nil
		l.head = (l.head + 1) % len(l.ring)
		l.size--
		l.bytes -= old.cost
		if len(l.spare) < maxSpare {
			l.spare = append(l.spare, old)
		}
	}
	if cost > l.maxBytes {
		return
	}
	e.cost = cost
	l.ring[(l.head+l.size)%len(l.ring)] = e
	l.size++
	l.bytes += cost
}

// maxSpare bounds the evicted entries that wait for reuse.
const maxSpare = 4

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

// List returns the newest records first, without their rows.
func (l *DecisionLog) List(f DecisionFilter) []DecisionRecord {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := []DecisionRecord{}
	for i := l.size - 1; i >= 0; i-- {
		e := l.at(i)
		if !e.matches(&f) {
			continue
		}
		out = append(out, e.record(false))
		if f.Limit > 0 && len(out) == f.Limit {
			break
		}
	}
	return out
}

// Get returns the record of a decision with its rows. A request's id finds the
// newest decision of that request.
func (l *DecisionLog) Get(id string) (DecisionRecord, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := l.size - 1; i >= 0; i-- {
		if e := l.at(i); e.id == id || e.requestID() == id {
			return e.record(true), true
		}
	}
	return DecisionRecord{}, false
}

// Len is the number of records that are kept.
func (l *DecisionLog) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.size
}

func (l *DecisionLog) at(i int) *entry { return l.ring[(l.head+i)%len(l.ring)] }

func (e *entry) matches(f *DecisionFilter) bool {
	return (f.Partition.Model == "" || f.Partition.Model == e.partition.Model) &&
		(f.Partition.Group == "" || f.Partition.Group == e.partition.Group) &&
		(f.Policy == "" || f.Policy == e.policy) &&
		(f.By == "" || f.By == string(e.by)) &&
		(f.Worker == "" || f.Worker == e.name) &&
		(f.RequestID == "" || f.RequestID == e.requestID())
}

// requestID is the part of the id before the last dot; "d" for a request that
// had none.
func (e *entry) requestID() string {
	return e.id[:max(strings.LastIndexByte(e.id, '.'), 0)]
}
