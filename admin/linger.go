package admin

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// What a client may still send after its request was refused before its body
// was read: closing at once would reset the connection and the client would
// lose the answer.
const (
	lingerTime  = 500 * time.Millisecond
	lingerBytes = 32 << 20
)

// connections are those that are open, so that the last ones can be cut.
type connections struct {
	mu   sync.Mutex // guards all
	open map[*conn]struct{}
	cut  bool
}

// add reports whether the connection may live.
func (s *connections) add(c *conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cut {
		return false
	}
	if s.open == nil {
		s.open = map[*conn]struct{}{}
	}
	s.open[c] = struct{}{}
	return true
}

func (s *connections) remove(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, c)
}

// closeAll cuts what is open and what still comes.
func (s *connections) closeAll() error {
	s.mu.Lock()
	open := s.open
	s.open, s.cut = nil, true
	s.mu.Unlock()
	var errs []error
	for c := range open {
		if err := c.Conn.Close(); !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

type listener struct {
	net.Listener
	conns *connections
}

// Accept wraps the connection.
func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	wrapped := &conn{Conn: c, conns: l.conns}
	if !l.conns.add(wrapped) {
		return nil, errors.Join(net.ErrClosed, c.Close())
	}
	return wrapped, nil
}

// conn is a connection that can linger.
type conn struct {
	net.Conn
	conns   *connections
	lingers atomic.Bool
}

// Close ends the connection; one that lingers ends its sending side first and
// reads away, for a bounded time, what still comes.
func (c *conn) Close() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok && c.lingers.Swap(false) && half.CloseWrite() == nil {
		if c.SetReadDeadline(time.Now().Add(lingerTime)) == nil {
			_, _ = io.CopyN(io.Discard, c.Conn, lingerBytes) // whatever ends it, the connection is closed
		}
	}
	c.conns.remove(c)
	return c.Conn.Close()
}
