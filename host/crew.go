package host

import (
	"sync"
	"sync/atomic"
)

// crew are the goroutines that work in the background for a runtime's pools. Safe
// for concurrent use.
type crew struct {
	closed atomic.Bool // guests are stopped at their next slice

	mu   sync.Mutex // guards starting one
	work sync.WaitGroup
}

// start runs f on a goroutine of its own; false after close.
func (c *crew) start(f func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed.Load() {
		return false
	}
	c.work.Go(f)
	return true
}

// close has no more started, and waits for those at work.
func (c *crew) close() {
	c.mu.Lock()
	c.closed.Store(true)
	c.mu.Unlock()
	c.work.Wait()
}
