package sim

import (
	"context"
	"encoding/json"
	"sync"
	"time"
)

// The kinds of POST /sim/faults.
const (
	faultStall       = "stall"              // never answer, or stop after some chunks
	faultReset       = "reset"              // close the connection, or after some chunks
	faultStatus      = "status"             // answer with a status, headers and body
	faultDelay       = "delay"              // wait before the answer
	faultError       = "error"              // an error event after some chunks
	faultDropEvents  = "drop_events"        // number batches but do not send them
	faultDropReplies = "drop_replies"       // disturb replay answers
	faultResetCache  = "reset_prefix_cache" // empty the cache, at once
)

// The modes of drop_replies.
const (
	replySilent = "silent" // no answer at all
	replyHoles  = "holes"  // every third batch is missing
	replyNoEnd  = "no_end" // the end marker is missing
)

// fault is one order to misbehave. Count is how often it still acts.
type fault struct {
	Kind        string            `json:"kind"`
	Count       int               `json:"count"`
	Path        string            `json:"path,omitempty"`
	AfterChunks int               `json:"after_chunks,omitempty"`
	Status      int               `json:"status,omitempty"`
	Headers     map[string]string `json:"headers,omitempty"`
	Delay       string            `json:"delay,omitempty"`
	Rank        *int              `json:"rank,omitempty"`
	Mode        string            `json:"mode,omitempty"`
	Body        json.RawMessage   `json:"body,omitempty"`

	delay    time.Duration
	released <-chan struct{} // of a taken order: closed when orders are cleared
}

// body is what a status fault answers: a JSON text is sent as its characters,
// any other JSON as it stands.
func (f *fault) body() []byte {
	var text string
	if json.Unmarshal(f.Body, &text) == nil {
		return []byte(text)
	}
	return f.Body
}

func (f *fault) forPath(path string) bool {
	if f.Path != "" {
		return f.Path == path
	}
	return path == chatPath || path == textPath
}

func (f *fault) forRank(rank int) bool { return f.Rank == nil || *f.Rank == rank }

// faults holds the orders that still have something to do, oldest first. Safe
// for concurrent use.
type faults struct {
	mu      sync.Mutex // guards list, cleared
	list    []*fault
	cleared chan struct{} // closed by clear: whoever is held goes on
}

func newFaults() *faults {
	return &faults{cleared: make(chan struct{})}
}

func (f *faults) add(order fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.list = append(f.list, &order)
}

// clear forgets all orders and lets held requests go on.
func (f *faults) clear() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.list = nil
	close(f.cleared)
	f.cleared = make(chan struct{})
}

// active copies the orders that are left.
func (f *faults) active() []fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	list := make([]fault, len(f.list))
	for i, order := range f.list {
		list[i] = *order
	}
	return list
}

// takeHTTP uses up one count of the oldest order for a request to path.
func (f *faults) takeHTTP(path string) *fault {
	return f.take(func(order *fault) bool {
		switch order.Kind {
		case faultStall, faultReset, faultStatus, faultDelay, faultError:
			return order.forPath(path)
		}
		return false
	})
}

// takeRank uses up one count of the oldest order of a kind for a rank.
func (f *faults) takeRank(kind string, rank int) *fault {
	return f.take(func(order *fault) bool { return order.Kind == kind && order.forRank(rank) })
}

func (f *faults) take(fits func(*fault) bool) *fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, order := range f.list {
		if !fits(order) {
			continue
		}
		order.Count--
		if order.Count == 0 {
			f.list = append(f.list[:i:i], f.list[i+1:]...)
		}
		taken := *order
		taken.released = f.cleared
		return &taken
	}
	return nil
}

// hold blocks until the orders are cleared (also before the call) or ctx ends,
// whose cause it returns.
func (f *fault) hold(ctx context.Context) error {
	select {
	case <-f.released:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
