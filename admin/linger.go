package admin

import (
	"io"
	"net"
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

type listener struct{ net.Listener }

// Accept wraps the connection.
func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &conn{Conn: c}, nil
}

// conn is a connection that can linger.
type conn struct {
	net.Conn
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
	return c.Conn.Close()
}
