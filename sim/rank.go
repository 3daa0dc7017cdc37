package sim

import (
	"context"
	"slices"
	"sync"
)

// rank is one data-parallel rank: its slots, its queue and its block cache.
type rank struct {
	id        int
	slots     int
	publisher *publisher // nil when events are off

	// mu guards everything below. Events are handed to the publisher under it,
	// so that their order is the order of the cache's changes.
	mu       sync.Mutex
	cache    *cache
	running  []string  // adapter of each running request, "" = base model
	waiting  []*ticket // in order of arrival
	requests uint64
	canceled uint64
	queries  uint64 // prompt tokens looked up
	hits     uint64 // prompt tokens found
}

// ticket is one place in the queue; ready is closed when it becomes a slot.
type ticket struct {
	adapter string
	ready   chan struct{}
}

func newRank(id int, c Config, p *publisher) *rank {
	return &rank{
		id:        id,
		slots:     c.Slots,
		publisher: p,
		cache:     newCache(c.BlockSize, c.Blocks, rootDigest(c.Name)),
	}
}

// acquire waits for a slot, first come first served. After a nil error the
// caller owns a slot and gives it back with leave.
func (r *rank) acquire(ctx context.Context, adapter string) error {
	r.mu.Lock()
	r.requests++
	if len(r.running) < r.slots && len(r.waiting) == 0 {
		r.running = append(r.running, adapter)
		r.mu.Unlock()
		return nil
	}
	t := &ticket{adapter: adapter, ready: make(chan struct{})}
	r.waiting = append(r.waiting, t)
	r.mu.Unlock()

	select {
	case <-t.ready:
		return nil
	case <-ctx.Done():
		r.abandon(t)
		return context.Cause(ctx)
	}
}

// abandon gives up a place, which may have become a slot in the meantime.
func (r *rank) abandon(t *ticket) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := slices.Index(r.waiting, t); i >= 0 {
		r.waiting = slices.Delete(r.waiting, i, i+1)
		return
	}
	r.leaveLocked(t.adapter)
}

func (r *rank) leave(adapter string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leaveLocked(adapter)
}

func (r *rank) leaveLocked(adapter string) {
	if i := slices.Index(r.running, adapter); i >= 0 {
		r.running = slices.Delete(r.running, i, i+1)
	}
	for len(r.waiting) > 0 && len(r.running) < r.slots {
		next := r.waiting[0]
		r.waiting = slices.Delete(r.waiting, 0, 1)
		r.running = append(r.running, next.adapter)
		close(next.ready)
	}
}

// load is the number of requests that run or wait.
func (r *rank) load() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.running) + len(r.waiting)
}

// openPrompt holds what is cached of a prompt of n tokens and counts the hit.
// As in vLLM the last token is always computed, so its block is never a hit.
func (r *rank) openPrompt(s sequence, n int) *chain {
	r.mu.Lock()
	defer r.mu.Unlock()
	ch := r.cache.open(s, (n-1)/r.cache.blockSize)
	r.queries += uint64(n)
	r.hits += uint64(len(ch.held) * r.cache.blockSize)
	return ch
}

// openAnswer holds the prompt's n tokens for a further answer to the prompt.
func (r *rank) openAnswer(s sequence, n int) *chain {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.cache.open(s, n/r.cache.blockSize)
}

// fill caches the blocks that are full with computed tokens and publishes it.
func (r *rank) fill(ch *chain, computed int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if events := r.cache.fill(ch, computed); len(events) > 0 {
		r.publish(events)
	}
}

func (r *rank) release(ch *chain) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cache.release(ch)
}

// clear empties the cache and says so to the subscribers.
func (r *rank) clear() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cache.clear()
	r.publish([]event{{kind: allBlocksCleared}})
}

func (r *rank) publish(events []event) {
	if r.publisher != nil {
		r.publisher.add(r.id, events)
	}
}

func (r *rank) countCancelled() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.canceled++
}

// rankState is what one rank tells about itself at one moment.
type rankState struct {
	running  []string
	waiting  []string
	requests uint64
	canceled uint64
	queries  uint64
	hits     uint64
	blocks   int
	usage    float64
}

func (r *rank) state() rankState {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := rankState{
		running:  slices.Clone(r.running),
		requests: r.requests,
		canceled: r.canceled,
		queries:  r.queries,
		hits:     r.hits,
		blocks:   len(r.cache.blocks),
		usage:    r.cache.usage(),
	}
	for _, t := range r.waiting {
		s.waiting = append(s.waiting, t.adapter)
	}
	return s
}

func (r *rank) hashes(form HashForm) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.cache.hashes(form)
}
