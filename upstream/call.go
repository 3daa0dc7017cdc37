package upstream

import (
	"context"
	"sync"
)

// Call is the handle by which one client request, over all its attempts, is
// cancelled. The zero value is ready. It must not be copied, serve a second
// request, or be in two Do at once.
type Call struct {
	mu        sync.Mutex // guards cancelled, conn, stopDial
	cancelled bool
	conn      *conn
	stopDial  context.CancelFunc

	body Body // of the latest successful Do; owned by the caller's goroutine
}

// Cancel ends the call in whatever phase it is: the connection to the worker
// is closed before Cancel returns, and what waits on it returns an Error with
// Cancelled set. Further attempts fail at once. It is idempotent and safe for
// concurrent use; after the body was closed it has no effect on connections.
func (k *Call) Cancel() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.cancelled {
		return
	}
	k.cancelled = true
	if k.stopDial != nil {
		k.stopDial()
	}
	// Under the lock, so that the connection cannot meanwhile return to the
	// pool and serve somebody else. Whoever reads or writes holds no lock.
	if k.conn != nil {
		_ = k.conn.nc.Close()
	}
}

// Cancelled reports whether Cancel has been called.
func (k *Call) Cancelled() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.cancelled
}

// dialing puts a dial under Cancel; false means the call is cancelled. A nil
// stop ends it.
func (k *Call) dialing(stop context.CancelFunc) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.stopDial = stop
	return !k.cancelled
}

// attach puts a connection under Cancel; false means the call is cancelled.
func (k *Call) attach(c *conn) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.cancelled {
		return false
	}
	k.conn = c
	return true
}

// detach takes the connection back; false means that Cancel has closed it.
func (k *Call) detach() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.conn = nil
	return !k.cancelled
}
