package frontend

import (
	"errors"
	"io"
	"net"
	"slices"
	"sync"

	"github.com/valyala/fasthttp"
)

const (
	// prefetch is what fasthttp itself reads of a body before the handler runs.
	prefetch = 1
	// smallBody is the size of pooled buffers; larger ones are left to the
	// collector.
	smallBody = 16 << 10
	// trustAfter is the part of an announced body, as a divisor, that must have
	// come before memory for all of it is taken.
	trustAfter = 4
)

// tooLong tells whether the request announces more than is allowed.
func (c *Config) tooLong(h *fasthttp.RequestHeader) bool {
	return int64(h.ContentLength()) > c.MaxBody
}

// expect answers a client that asks before it sends its body. A body that is
// announced too large is refused there, before a byte of it.
func (s *Server) expect(ctx *fasthttp.RequestCtx) int {
	if !s.cfg.Load().tooLong(&ctx.Request.Header) {
		return fasthttp.StatusContinue
	}
	s.refuseParse(ctx, fasthttp.ErrBodyTooLarge)
	ctx.Response.Header.Set(headerRequestID, s.requestIDOf(&ctx.Request.Header))
	return fasthttp.StatusRequestEntityTooLarge
}

// readBody takes the request's body from the connection. Its memory grows with
// the bytes that come, whatever the client has announced. fasthttp's read
// deadline, set at the request's first byte, holds meanwhile.
func (x *exchange) readBody() error {
	src := x.ctx.Request.BodyStream()
	if src == nil {
		return nil
	}
	length := x.ctx.Request.Header.ContentLength()
	x.small = x.s.bodies.get()
	body, err := readAll(src, *x.small, length, x.cfg.MaxBody)
	if err != nil {
		x.closing = true
		if op, ok := errors.AsType[*net.OpError](err); ok && !op.Timeout() {
			return errClientGone // the connection broke
		}
		return &parseError{err}
	}
	x.whole = true
	x.arrived()
	x.ctx.Request.SetBodyRaw(body)
	return nil
}

// readAll reads src to its end into dst, which it may replace by a larger
// slice. A length below 0 is not known.
func readAll(src io.Reader, dst []byte, length int, limit int64) ([]byte, error) {
	dst = dst[:0]
	for {
		if len(dst) == cap(dst) {
			grow := len(dst)
			if left := length - len(dst); left > 0 && (left < grow || length/trustAfter <= len(dst)) {
				grow = left
			}
			grow = min(max(grow, bytesToEnd), int(limit)+bytesToEnd-len(dst))
			dst = slices.Grow(dst, grow)
		}
		n, err := src.Read(dst[len(dst):cap(dst)])
		dst = dst[:len(dst)+n]
		switch {
		case int64(len(dst)) > limit:
			return nil, fasthttp.ErrBodyTooLarge
		case errors.Is(err, io.EOF) && len(dst) < length:
			return nil, io.ErrUnexpectedEOF
		case errors.Is(err, io.EOF):
			return dst, nil
		case err != nil:
			return nil, err
		}
	}
}

// bytesToEnd is room for the read that only finds the end.
const bytesToEnd = 512

// forgetBody gives the memory of the request's body back; no further attempt
// can follow.
func (x *exchange) forgetBody() {
	x.scan = scan{}
	x.ctx.Request.SetBodyRaw(nil)
	x.s.bodies.put(x.small)
	x.small = nil
}

// arrived notes that all of the request is here, for a drain.
func (x *exchange) arrived() {
	if c, ok := x.ctx.Conn().(*conn); ok {
		c.arrived.Store(true)
	}
}

// leaveBody lets the connection read away what was not read of a body.
func (x *exchange) leaveBody() {
	if c, ok := x.ctx.Conn().(*conn); ok && !x.whole && x.ctx.Request.BodyStream() != nil {
		c.linger.Store(true)
	}
}

// bodies are buffers of smallBody bytes.
type bodies struct{ pool sync.Pool }

func (b *bodies) get() *[]byte {
	if p, ok := b.pool.Get().(*[]byte); ok {
		return p
	}
	p := make([]byte, smallBody)
	return &p
}

func (b *bodies) put(p *[]byte) {
	if p != nil {
		b.pool.Put(p)
	}
}
