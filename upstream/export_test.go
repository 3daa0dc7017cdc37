package upstream

import (
	"bufio"
	"io"
	"net"
	"time"

	"github.com/valyala/fasthttp"
)

// NewChunkedReader returns the reader of chunked bodies over r.
func NewChunkedReader(r io.Reader, buffer int) io.Reader {
	return &chunkedReader{r: bufio.NewReaderSize(r, buffer)}
}

// Socket returns the connection that b is read from.
func Socket(b *Body) net.Conn { return b.conn.nc }

// ReadHead reads the head of an answer from r.
func ReadHead(r io.Reader, hdr *fasthttp.ResponseHeader) error {
	c := &conn{}
	c.br = bufio.NewReaderSize(r, 1024)
	return c.readHead(hdr)
}

// Breakers are breakers without a client.
type Breakers struct{ s breakers }

// Pass is the right to one call.
type Pass struct{ p pass }

// NewBreakers returns breakers that tell fn.
func NewBreakers(cfg BreakerConfig, fn func(worker string, open bool, reason string)) *Breakers {
	b := &Breakers{}
	b.s.configure(cfg)
	b.s.told.Store(&fn)
	return b
}

// Enter asks for a call.
func (b *Breakers) Enter(ep Endpoint) (Pass, *Error) {
	p, err := b.s.enter(ep)
	return Pass{p}, err
}

// Leave ends a call with an error or, without one, a status.
func (b *Breakers) Leave(ep Endpoint, p Pass, err *Error, status int) {
	b.s.leave(ep, p.p, err, status)
}

// Configure puts another configuration in force.
func (b *Breakers) Configure(cfg BreakerConfig) { b.s.configure(cfg) }

// Reset closes the breaker of an endpoint.
func (b *Breakers) Reset(ep Endpoint, reason string) { b.s.reset(ep, reason) }

// Sweep is what Run does now and then.
func (b *Breakers) Sweep() { b.s.sweep(time.Now()) }

// Len is how many workers are remembered.
func (b *Breakers) Len() int { return b.s.len() }

// Remembered is how many workers the client's breakers remember.
func (c *Client) Remembered() int { return c.breakers.len() }

func (s *breakers) len() int {
	if m := s.failed.Load(); m != nil {
		return len(*m)
	}
	return 0
}
