package upstream

import (
	"bufio"
	"errors"
	"net"
	"time"
)

const (
	// sendSlice is how long a write may stall before a look whether the worker
	// has answered already and reads no more.
	sendSlice = 100 * time.Millisecond
	// keptHead bounds the head buffer that a pooled connection keeps.
	keptHead = 8 << 10
)

// errAnswered ends the sending of a request that was answered half-way.
var errAnswered = errors.New("worker answered before the request was sent")

// conn is one connection to a worker. It is owned by the goroutine of its
// call; only nc.Close is called from others.
type conn struct {
	nc    net.Conn
	probe *probe
	addr  string
	br    *bufio.Reader // on conn itself
	big   *bufio.Reader // on br, for a head that br cannot hold; nil otherwise

	head []byte // the serialised request head
	iov  [2][]byte
	vec  net.Buffers

	reused    bool
	idleSince time.Time
	readBy    time.Time     // the read deadline in force
	idleRead  time.Duration // renewed before each read; 0 leaves the deadline alone
	got       int64         // bytes of this call's answer
}

// Read reads from the socket for the buffered reader.
func (c *conn) Read(p []byte) (int, error) {
	if c.idleRead > 0 {
		c.armRead(c.idleRead, c.idleRead/8)
	}
	n, err := c.nc.Read(p)
	c.got += int64(n)
	return n, err
}

// reader is where the answer's next bytes come from.
func (c *conn) reader() *bufio.Reader {
	if c.big != nil {
		return c.big
	}
	return c.br
}

// armRead makes the next reads fail d from now, 0 meaning never. With slack
// the deadline in force stays if it lies between d and d+slack from now, which
// spares the timer.
func (c *conn) armRead(d, slack time.Duration) {
	if d <= 0 {
		if !c.readBy.IsZero() {
			c.readBy = time.Time{}
			_ = c.nc.SetReadDeadline(c.readBy) // fails only on a closed connection, as the read will
		}
		return
	}
	now := time.Now()
	if left := c.readBy.Sub(now); slack > 0 && left >= d && left <= d+slack {
		return
	}
	c.readBy = now.Add(d + slack)
	_ = c.nc.SetReadDeadline(c.readBy)
}

// send writes head and body with one vectored write and copies neither. It
// returns errAnswered if the worker stops reading and has answered or closed.
func (c *conn) send(body []byte, limit time.Duration) error {
	c.iov = [2][]byte{c.head, body}
	c.vec = c.iov[:]
	if len(body) == 0 {
		c.vec = c.iov[:1]
	}
	defer func() { c.iov, c.vec = [2][]byte{}, nil }() // an idle connection keeps no body
	began := time.Now()
	for now := began; ; now = time.Now() {
		by := now.Add(sendSlice)
		if end := began.Add(limit); limit > 0 && end.Before(by) {
			by = end
		}
		if err := c.nc.SetWriteDeadline(by); err != nil {
			return err
		}
		_, err := c.vec.WriteTo(c.nc)
		switch {
		case err == nil || !isTimeout(err):
			return err
		case !c.probe.isQuiet():
			return errAnswered
		case limit > 0 && time.Since(began) >= limit:
			return err
		}
	}
}

// begin prepares the connection for a call.
func (c *conn) begin() {
	c.got, c.idleRead = 0, 0
}

// spent reports that nothing of an answer is left, so that the next one
// begins at the next byte.
func (c *conn) spent() bool {
	return c.br.Buffered() == 0 && (c.big == nil || c.big.Buffered() == 0)
}

// rest prepares the connection for the pool.
func (c *conn) rest(now time.Time) {
	c.big = nil
	c.reused, c.idleSince = true, now
	if cap(c.head) > keptHead {
		c.head = nil
	}
}
