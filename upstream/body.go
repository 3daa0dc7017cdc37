package upstream

import (
	"errors"
	"io"
	"slices"
	"time"

	"github.com/valyala/fasthttp"
)

type framing uint8

const (
	framedNone framing = iota // no body
	framedLength
	framedChunked
	framedClose // until the connection ends
)

// Body is the payload of one answer. It belongs to one goroutine, and is
// valid until the next Do of its Call.
type Body struct {
	client  *Client
	call    *Call
	conn    *conn // nil after Close
	framing framing
	keep    bool // the connection may serve again
	left    int64
	size    int64
	chunked chunkedReader
	err     error // what the next Read returns
}

// Read waits until payload has arrived, takes what is there already, as far
// as it fits, and never waits for more. A body that ends before its framing
// says so is an *Error; io.EOF means that it is complete.
func (b *Body) Read(p []byte) (int, error) {
	if b.err != nil || len(p) == 0 {
		return 0, b.err
	}
	n, err := b.read(p)
	if err == nil {
		return n, nil
	}
	if b.err = err; !errors.Is(err, io.EOF) {
		b.err = b.client.failure(b.call, b.conn, PhaseBody, err)
	}
	if n > 0 {
		return n, nil
	}
	return 0, b.err
}

func (b *Body) read(p []byte) (n int, err error) {
	switch b.framing {
	case framedChunked:
		return b.chunked.Read(p)
	case framedClose:
		return b.conn.reader().Read(p)
	default:
		n, err = b.conn.reader().Read(p[:min(int64(len(p)), b.left)])
		if b.left -= int64(n); b.left == 0 {
			return n, io.EOF
		}
		return n, cut(err)
	}
}

// AppendTo reads the rest of the body behind dst and returns the longer slice,
// as append does; it stands for io.ReadAll where the caller has a buffer. A
// body of more than limit bytes is ErrBodyTooLarge.
func (b *Body) AppendTo(dst []byte, limit int) ([]byte, error) {
	began := len(dst)
	if b.size > int64(limit) {
		return dst, ErrBodyTooLarge
	}
	if b.size > 0 {
		dst = slices.Grow(dst, int(b.size))
	}
	for {
		if len(dst) == cap(dst) && b.err == nil {
			dst = slices.Grow(dst, max(512, len(dst)/2))
		}
		n, err := b.Read(dst[len(dst):cap(dst)])
		dst = dst[:len(dst)+n]
		switch {
		case len(dst)-began > limit:
			return dst[:began+limit], ErrBodyTooLarge
		case errors.Is(err, io.EOF):
			return dst, nil
		case err != nil:
			return dst, err
		}
	}
}

// Within makes reads of the rest fail from d on, as a Timeout, in place of the
// client's IdleReadTimeout; 0 puts that in force again.
func (b *Body) Within(d time.Duration) {
	if b.conn == nil {
		return
	}
	b.conn.idleRead = 0
	if d <= 0 {
		b.conn.idleRead = b.client.cfg.IdleReadTimeout
	}
	b.conn.armRead(max(d, b.conn.idleRead), 0)
}

// Size returns the payload's length in bytes if the answer's head gave it,
// else -1.
func (b *Body) Size() int64 { return b.size }

// Close ends the use of the body. The connection goes back to the pool if the
// body was read to io.EOF and may be kept, else it is closed, which tells the
// worker to stop. It always returns nil; calling it again does nothing.
func (b *Body) Close() error {
	c := b.conn
	if c == nil {
		return nil
	}
	b.conn = nil
	whole := errors.Is(b.err, io.EOF)
	b.err = ErrBodyClosed
	if b.call.detach() && whole && b.keep && c.spent() {
		b.client.pool.put(c)
		return nil
	}
	b.client.release(c)
	return nil
}

// open makes b the body of the answer whose head was read into hdr.
func (b *Body) open(client *Client, call *Call, c *conn, req *fasthttp.Request, hdr *fasthttp.ResponseHeader) {
	*b = Body{client: client, call: call, conn: c, size: -1, keep: !hdr.ConnectionClose() && !req.Header.ConnectionClose()}
	status, length := hdr.StatusCode(), hdr.ContentLength()
	switch {
	case req.Header.IsHead() || status == fasthttp.StatusNoContent || status == fasthttp.StatusNotModified:
		b.size, b.err = 0, io.EOF
	case length == 0:
		b.size, b.err = 0, io.EOF
	case length > 0:
		b.framing, b.left, b.size = framedLength, int64(length), int64(length)
	case length == -1:
		b.framing, b.chunked = framedChunked, chunkedReader{r: c.reader()}
	default:
		b.framing, b.keep = framedClose, false
	}
	if c.idleRead = client.cfg.IdleReadTimeout; c.idleRead == 0 {
		c.armRead(0, 0)
	}
}

var _ io.ReadCloser = (*Body)(nil)
