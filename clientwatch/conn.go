package clientwatch

import (
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// foreign marks a write deadline that the connection's user has set.
const foreign = -1

// Conn is an accepted connection that knows whether its client has gone.
type Conn struct {
	net.Conn
	w            *Watcher
	id           uint64
	unregister   func() bool
	writeTimeout time.Duration
	opened       time.Time
	writeBy      atomic.Int64 // the write deadline in force, counted from opened; 0 none, foreign: not ours
	closeOnce    sync.Once
	closeErr     error

	mu     sync.Mutex // guards gone, onGone
	gone   bool
	onGone func()
}

// Find returns the watched connection under c, through TLS and other
// wrappers that have NetConn, or nil. A nil *Conn may be used: it never goes.
func Find(c net.Conn) *Conn {
	for c != nil {
		if w, ok := c.(*Conn); ok {
			return w
		}
		u, ok := c.(interface{ NetConn() net.Conn })
		if !ok {
			return nil
		}
		c = u.NetConn()
	}
	return nil
}

// OnGone registers f to be called once when the client goes, and reports
// false, registering nothing, if it has gone already. There is one place for
// a callback, as a connection has one request at a time: a later OnGone
// replaces an earlier one.
//
// f runs on the watcher's goroutine (or on the one whose write failed), so it
// must be short and must not block. unregister forgets f and reports whether
// it did so in time: after true f will never run, after false it has run, is
// running, or was replaced. Neither call allocates.
func (c *Conn) OnGone(f func()) (unregister func() bool, ok bool) {
	if c == nil {
		return nothing, true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone {
		return nothing, false
	}
	c.onGone = f
	return c.unregister, true
}

// Gone reports whether the client is known to have gone.
func (c *Conn) Gone() bool {
	if c == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.gone
}

// Look is Gone after a look at the socket itself: what has just come in and that the
// watcher has not seen yet counts. It costs a system call.
func (c *Conn) Look() bool {
	if c == nil {
		return false
	}
	if !c.Gone() && c.w.poller.hungUp(c.Conn) {
		c.markGone()
	}
	return c.Gone()
}

// Read reads from the client. A failure other than a time-out or the regular
// end of the stream means that it has gone.
func (c *Conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err != nil && isReset(err) {
		c.markGone()
	}
	return n, err
}

// Write writes to the client within the configured write time-out. After a
// failed write the client counts as gone.
func (c *Conn) Write(p []byte) (int, error) {
	if c.writeTimeout > 0 {
		c.armWrite()
	}
	n, err := c.Conn.Write(p)
	if err != nil {
		c.markGone()
	}
	return n, err
}

// armWrite moves the deadline only when less than the time-out is left of it,
// which spares most writes the timer. A deadline that the user has set stays:
// TLS gives its closing alert five seconds, not two minutes.
func (c *Conn) armWrite() {
	by := c.writeBy.Load()
	if by == foreign {
		return
	}
	now := time.Since(c.opened)
	if time.Duration(by)-now >= c.writeTimeout {
		return
	}
	by = int64(now + c.writeTimeout + c.writeTimeout/8)
	c.writeBy.Store(by)
	_ = c.Conn.SetWriteDeadline(c.opened.Add(time.Duration(by))) // fails only on a closed connection, as the write will
}

// SetWriteDeadline sets the deadline of all further writes, in place of the
// configured write time-out; the zero time brings the time-out back.
func (c *Conn) SetWriteDeadline(t time.Time) error {
	c.noteWriteDeadline(t)
	return c.Conn.SetWriteDeadline(t)
}

// SetDeadline sets both deadlines, see SetWriteDeadline.
func (c *Conn) SetDeadline(t time.Time) error {
	c.noteWriteDeadline(t)
	return c.Conn.SetDeadline(t)
}

func (c *Conn) noteWriteDeadline(t time.Time) {
	if t.IsZero() {
		c.writeBy.Store(0)
		return
	}
	c.writeBy.Store(foreign)
}

// Close closes the connection and forgets its callback: a connection that the
// server closes has not gone.
func (c *Conn) Close() error {
	c.closeOnce.Do(func() {
		c.w.drop(c.id)
		c.mu.Lock()
		c.onGone = nil
		c.mu.Unlock()
		c.closeErr = c.Conn.Close()
	})
	return c.closeErr
}

// NetConn returns the connection below.
func (c *Conn) NetConn() net.Conn { return c.Conn }

func (c *Conn) markGone() {
	c.mu.Lock()
	f := c.onGone
	c.onGone = nil
	c.gone = true
	c.mu.Unlock()
	if f != nil {
		f()
	}
}

func (c *Conn) forget() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	had := c.onGone != nil
	c.onGone = nil
	return had
}

func nothing() bool { return false }

// isReset reports whether a read error means a broken connection: neither its
// regular end, nor a deadline, nor our own Close.
func isReset(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && !op.Timeout() && !errors.Is(err, net.ErrClosed) && !errors.Is(err, os.ErrDeadlineExceeded)
}
