package reserve

import (
	"container/list"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/routerd/routerd/fleet"
)

// PendingConfig bounds the selections that wait for their booking.
type PendingConfig struct {
	// TTL is how long a selection may be booked after it was made.
	TTL time.Duration
	// Entries and Bytes bound how many are kept and what they hold in memory; the
	// oldest go first.
	Entries int
	Bytes   int64
}

// DefaultPendingConfig is 120 s, 4,096 selections and 256 MiB.
func DefaultPendingConfig() PendingConfig {
	return PendingConfig{TTL: 120 * time.Second, Entries: 4096, Bytes: 256 << 20}
}

// Validate refuses what is out of range with a *fleet.FieldError.
func (c PendingConfig) Validate() error {
	switch {
	case c.TTL < time.Second || c.TTL > 365*24*time.Hour:
		return &fleet.FieldError{Field: "ttl", Value: c.TTL.String(), Allowed: "1s to 31536000s"}
	case c.Entries < 1 || c.Entries > 1<<20:
		return &fleet.FieldError{Field: "entries", Value: strconv.Itoa(c.Entries), Allowed: "1 to 1048576"}
	case c.Bytes < 1<<10 || c.Bytes > 1<<36:
		return &fleet.FieldError{Field: "bytes", Value: strconv.FormatInt(c.Bytes, 10), Allowed: "1024 to 68719476736"}
	}
	return nil
}

// PendingKey names a selection that waits for its booking.
type PendingKey struct {
	Partition fleet.PartitionKey
	ID        string // the selection id
}

// Pending holds selections that were made under a selection id and are perhaps
// booked later, in a call of their own. V is best a pointer: it is compared to
// tell a selection from a newer one under the same key. Safe for concurrent use.
//
//	p.Put(key, selection, size, now)
//	s, ok := p.Peek(key, now) // book s; where that fails it can be tried again
//	p.Consume(key, s)         // once it is booked
type Pending[V comparable] struct {
	cfg PendingConfig

	mu    sync.Mutex // guards all below
	byKey map[PendingKey]*list.Element
	order list.List // of *pending[V], the oldest first
	bytes int64
}

type pending[V comparable] struct {
	key     PendingKey
	value   V
	bytes   int64
	expires time.Time
}

// NewPending makes an empty one; cfg must be valid.
func NewPending[V comparable](cfg PendingConfig) *Pending[V] {
	return &Pending[V]{cfg: cfg, byKey: map[PendingKey]*list.Element{}}
}

// Put keeps a selection that holds so many bytes in memory, in place of an
// older one with its key. The oldest make room for it; one that alone is above
// the bound is not kept.
func (p *Pending[V]) Put(key PendingKey, v V, bytes int64, now time.Time) {
	bytes = max(bytes, 0)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.remove(p.byKey[key])
	if bytes > p.cfg.Bytes || p.cfg.Entries < 1 {
		return
	}
	for p.order.Len() >= p.cfg.Entries || p.bytes > p.cfg.Bytes-bytes {
		p.remove(p.order.Front())
	}
	p.byKey[key] = p.order.PushBack(&pending[V]{key, v, bytes, now.Add(p.cfg.TTL)})
	p.bytes += bytes
}

// Peek returns the selection of a key and leaves it where it is; ok is false
// when there is none or its time is over.
func (p *Pending[V]) Peek(key PendingKey, now time.Time) (v V, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := at[V](p.byKey[key])
	if e == nil || !now.Before(e.expires) {
		return v, false
	}
	return e.value, true
}

// Consume removes the selection of a key if it is still v, whatever its age,
// and reports whether it did.
func (p *Pending[V]) Consume(key PendingKey, v V) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	el := p.byKey[key]
	if e := at[V](el); e == nil || e.value != v {
		return false
	}
	p.remove(el)
	return true
}

// Discard removes the selection of a key, if there is one.
func (p *Pending[V]) Discard(key PendingKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.remove(p.byKey[key])
}

// DiscardAll removes the selections of some partitions. It looks at all.
func (p *Pending[V]) DiscardAll(partitions []fleet.PartitionKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for key, el := range p.byKey {
		if slices.Contains(partitions, key.Partition) {
			p.remove(el)
		}
	}
}

// Reap removes the selections whose time is over and returns how many. It looks
// only at those.
func (p *Pending[V]) Reap(now time.Time) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for el := p.order.Front(); el != nil && !now.Before(at[V](el).expires); el = p.order.Front() {
		p.remove(el)
		n++
	}
	return n
}

// Len is the number of selections that are kept.
func (p *Pending[V]) Len() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.order.Len()
}

// Bytes is what the selections hold, by the sizes given to Put.
func (p *Pending[V]) Bytes() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.bytes
}

// remove takes an element out; nil is none.
func (p *Pending[V]) remove(el *list.Element) {
	e := at[V](el)
	if e == nil {
		return
	}
	p.order.Remove(el)
	delete(p.byKey, e.key)
	p.bytes -= e.bytes
}

// at is the selection of an element, nil when there is none.
func at[V comparable](el *list.Element) *pending[V] {
	if el == nil {
		return nil
	}
	e, _ := el.Value.(*pending[V])
	return e
}
