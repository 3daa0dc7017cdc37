package frontend

import (
	"errors"
	"io"
	"sync"
	"time"
)

// stream is the body of an answer on its way to the client. fasthttp reads it
// on the connection's goroutine, writes what each read gave, and closes it at
// the end, also when the client cannot be written to: that ends the exchange.
type stream struct{ x *exchange }

var _ io.ReadCloser = (*stream)(nil)

// Read gives what the worker has sent, and waits only when there is nothing.
func (s *stream) Read(p []byte) (int, error) {
	x := s.x
	switch {
	case len(x.head) > 0:
		n := copy(p, x.head)
		x.head = x.head[n:]
		return n, nil
	case x.ended:
		return 0, io.EOF
	case x.readErr != nil:
		return 0, x.readErr
	}
	n, err := x.body.Read(p)
	switch {
	case n > 0:
		x.feed(p[:n])
		return n, nil
	case errors.Is(err, io.EOF):
		x.ended = true
		x.meter.finish()
	default:
		x.readErr = err
	}
	return 0, err
}

// Close ends the exchange.
func (s *stream) Close() error {
	s.x.close()
	return nil
}

// feed lets the meter see what goes by, and tells the booking what it says.
func (x *exchange) feed(p []byte) {
	x.lease.renew()
	x.meter.feed(p)
	if x.firstAt.IsZero() && (x.meter.count > 0 || !x.meter.events) {
		x.firstAt = time.Now()
		if x.meter.events {
			x.sel.Reservation.FirstToken(x.firstAt)
		} else {
			x.sel.Reservation.Answered()
		}
	}
	if n := x.meter.newBlocks(); n > 0 {
		x.sel.Reservation.OutputBlocks(n)
	}
	if x.ended {
		x.meter.finish()
	}
}

// buffers are pieces of firstRead bytes.
type buffers struct{ pool sync.Pool }

func (b *buffers) get() *[]byte {
	if p, ok := b.pool.Get().(*[]byte); ok {
		return p
	}
	p := make([]byte, firstRead)
	return &p
}

func (b *buffers) put(p *[]byte) {
	if p != nil {
		b.pool.Put(p)
	}
}
