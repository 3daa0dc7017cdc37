package frontend

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/routerd/routerd/clientwatch"
)

// listener hands out connections as the relay needs them.
type listener struct {
	net.Listener
	watchers *clientwatch.Modes
	cfg      *atomic.Pointer[Config]
	closing  sync.Once
	err      error
}

// Close closes the listener; further calls return what the first did.
func (l *listener) Close() error {
	l.closing.Do(func() { l.err = l.Listener.Close() })
	return l.err
}

// Accept returns the next connection, always a *conn.
func (l *listener) Accept() (net.Conn, error) {
	nc, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	mode := l.cfg.Load().HalfClose
	return &conn{Conn: l.watchers.Adopt(nc, mode), halfClose: mode}, nil
}

// conn is a client's connection. Beside the watched connection under it, it
// relays bodies of known length as they come, and says goodbye to a client that
// still sends.
type conn struct {
	net.Conn
	halfClose string      // Config.HalfClose when it was accepted
	busy      atomic.Bool // a request is being read or answered
	arrived   atomic.Bool // that request is here whole
	linger    atomic.Bool // read what still comes before closing
	closed    sync.Once
}

// NetConn returns the connection below, by which clientwatch finds its own.
func (c *conn) NetConn() net.Conn { return c.Conn }

// Read reads from the client.
func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 && !c.busy.Load() {
		c.busy.Store(true)
	}
	return n, err
}

// ReadFrom relays r with one write a read. fasthttp's writer would fill its
// buffer first; it hands over to this method once the head is out.
func (c *conn) ReadFrom(r io.Reader) (total int64, err error) {
	buf := make([]byte, relayBuffer)
	for {
		n, readErr := r.Read(buf)
		if n > 0 {
			written, err := c.Write(buf[:n])
			total += int64(written)
			if err != nil {
				return total, err
			}
		}
		if errors.Is(readErr, io.EOF) {
			return total, nil
		}
		if readErr != nil {
			return total, readErr
		}
	}
}

// Close closes the connection. With linger set, it first ends the sending side
// and reads away what the client still sends: a close with unread bytes would
// reset the connection, and the client might never see the answer.
func (c *conn) Close() error {
	if c.linger.Load() {
		c.closed.Do(c.drainInput)
	}
	return c.Conn.Close()
}

func (c *conn) drainInput() {
	under := net.Conn(c.Conn)
	if w := clientwatch.Find(under); w != nil {
		under = w.NetConn()
	}
	half, ok := under.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		return
	}
	if c.SetReadDeadline(time.Now().Add(linger)) == nil {
		_, _ = io.Copy(io.Discard, io.LimitReader(c.Conn, lingerAtMost)) // whatever ends it, Close follows
	}
}

var (
	_ net.Conn      = (*conn)(nil)
	_ io.ReaderFrom = (*conn)(nil)
)
