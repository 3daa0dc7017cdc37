package httpapi

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

// Conns are the open connections of a server, so that the last ones can be cut.
// The zero value is ready. Safe for concurrent use.
type Conns struct {
	mu   sync.Mutex // guards all
	open map[*Conn]struct{}
	cut  bool
}

// Wrap returns a listener whose connections are *Conn and are known here.
func (s *Conns) Wrap(ln net.Listener) net.Listener { return connListener{ln, s} }

// Cut closes what is open and what still comes. It goes around what is wrapped
// around a Conn.
func (s *Conns) Cut() error {
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

// add reports whether the connection may live.
func (s *Conns) add(c *Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cut {
		return false
	}
	if s.open == nil {
		s.open = map[*Conn]struct{}{}
	}
	s.open[c] = struct{}{}
	return true
}

func (s *Conns) remove(c *Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, c)
}

type connListener struct {
	net.Listener
	conns *Conns
}

// Accept wraps the connection.
func (l connListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	wrapped := &Conn{Conn: c, conns: l.conns}
	if !l.conns.add(wrapped) {
		return nil, errors.Join(net.ErrClosed, c.Close())
	}
	return wrapped, nil
}

// Conn is a connection that can linger.
type Conn struct {
	net.Conn
	conns   *Conns
	lingers atomic.Bool
}

// Linger has Close end the sending side first and read away, for a bounded time,
// what still comes.
func (c *Conn) Linger() { c.lingers.Store(true) }

// Close ends the connection, see Linger.
func (c *Conn) Close() error {
	if c.lingers.Swap(false) && closeWrite(c.Conn) {
		if c.SetReadDeadline(time.Now().Add(lingerTime)) == nil {
			_, _ = io.CopyN(io.Discard, c.Conn, lingerBytes) // whatever ends it, the connection is closed
		}
	}
	c.conns.remove(c)
	return c.Conn.Close()
}

// NetConn returns the connection below.
func (c *Conn) NetConn() net.Conn { return c.Conn }

// closeWrite ends the sending side of the first connection below that can.
func closeWrite(c net.Conn) bool {
	for {
		if half, ok := c.(interface{ CloseWrite() error }); ok {
			return half.CloseWrite() == nil
		}
		under, ok := c.(interface{ NetConn() net.Conn })
		if !ok {
			return false
		}
		c = under.NetConn()
	}
}
