package catalog

import "sync"

// changes tells everybody who listens that something has changed.
type changes struct {
	mu   sync.Mutex // guards next
	next chan struct{}
}

func newChanges() *changes { return &changes{next: make(chan struct{})} }

// changed returns a channel that is closed at the next change.
func (c *changes) changed() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.next
}

// tell closes what changed has returned.
func (c *changes) tell() {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.next)
	c.next = make(chan struct{})
}
