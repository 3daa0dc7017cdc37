package selection

import (
	"net"
	"sync"
	"sync/atomic"

	"github.com/routerd/routerd/clientwatch"
	"github.com/routerd/routerd/core/reserve"
)

// listener hands out every connection as a *conn.
type listener struct {
	net.Listener
	watchers *clientwatch.Modes
	cfg      *atomic.Pointer[Config]
	metrics  *metrics
}

// Accept returns the next connection.
func (l *listener) Accept() (net.Conn, error) {
	nc, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	nc = l.watchers.Adopt(nc, l.cfg.Load().HalfClose)
	return &conn{Conn: nc, watched: clientwatch.Find(nc), metrics: l.metrics}, nil
}

// conn is a caller's connection, which sees to the answers that carry a booking.
//
// The server flushes such an answer before it looks at another request (see
// deliver). So the answer was handed over whole when a Write has come about since
// carry and none has failed by the time that the server goes on.
type conn struct {
	net.Conn
	watched *clientwatch.Conn
	metrics *metrics

	mu      sync.Mutex // guards all below
	carried *reserve.Reservation
	writing bool // a Write is under way, which tells how it went
	wrote   bool // some of the answer
}

// carry releases the booking unless the answer that follows is handed over whole.
func (c *conn) carry(r *reserve.Reservation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.carried, c.wrote = r, false
}

// delivered tells that the answer before was handed over: the server goes on.
func (c *conn) delivered() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.carried = nil
}

// Read reads from the caller, which the server does only when it has handed over
// its answers or reads away what comes after a refusal.
func (c *conn) Read(p []byte) (int, error) {
	c.delivered()
	return c.Conn.Read(p)
}

// Write writes to the caller.
func (c *conn) Write(p []byte) (int, error) {
	c.mu.Lock()
	c.writing = true
	c.mu.Unlock()
	n, err := c.Conn.Write(p)
	c.mu.Lock()
	c.writing = false
	c.wrote = c.wrote || err == nil
	c.mu.Unlock()
	if err != nil {
		c.drop()
	}
	return n, err
}

// Close closes the connection, also from another goroutine than its own.
func (c *conn) Close() error {
	c.mu.Lock()
	unsent := !c.writing && !c.wrote
	c.mu.Unlock()
	if unsent {
		c.drop()
	}
	return c.Conn.Close()
}

// drop releases the booking whose answer did not go out whole.
func (c *conn) drop() {
	c.mu.Lock()
	r := c.carried
	c.carried = nil
	c.mu.Unlock()
	if r != nil {
		c.metrics.release(r)
	}
}

// NetConn returns the connection below.
func (c *conn) NetConn() net.Conn { return c.Conn }
