package upstream

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"
)

// breakerSweep is how often breakers are looked at whose cooldown may be over.
const breakerSweep = 100 * time.Millisecond

// Client sends requests to workers and keeps connections to them. It is safe
// for concurrent use.
type Client struct {
	cfg      Config       // but for FirstByteTimeout and Breaker, which can change
	patience atomic.Int64 // FirstByteTimeout in nanoseconds
	dialer   net.Dialer
	pool     pool
	breakers breakers
	counters counters
	readers  sync.Pool // of *bufio.Reader, of closed connections
}

// New returns a client for a configuration that has passed Validate. It
// starts nothing; see Run.
func New(cfg Config) *Client {
	c := &Client{cfg: cfg}
	c.patience.Store(int64(cfg.FirstByteTimeout))
	c.breakers.configure(cfg.Breaker)
	c.dialer.KeepAliveConfig = net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3}
	c.pool = pool{maxPerHost: cfg.MaxIdlePerHost, timeout: cfg.IdleConnTimeout, counters: &c.counters, hosts: make(map[string]*host)}
	return c
}

// SetFirstByteTimeout changes Config.FirstByteTimeout, which d must suit, for
// the requests that are sent from now on.
func (c *Client) SetFirstByteTimeout(d time.Duration) { c.patience.Store(int64(d)) }

// Breaker is the configuration of the breakers in force.
func (c *Client) Breaker() BreakerConfig { return *c.breakers.cfg.Load() }

// Configure puts other settings of the breakers in force; an error names the
// field that is out of range, and nothing has changed then. An open breaker keeps
// its cooldown; with Failures 0 all close.
func (c *Client) Configure(cfg BreakerConfig) error {
	if err := cfg.Validate(); err != nil {
		return fmt.Errorf("breaker: %w", err)
	}
	c.breakers.configure(cfg)
	return nil
}

// OnBreaker has fn told of each change of a breaker's state: worker is the
// worker's base URL in the form of fleet.NormaliseURL, open that it is called no
// more, else that it may be called again, one call at a time (when the cooldown is
// over) or as before. The reason is for operators and may hold the address. For
// one worker fn is called in the order of the changes and never twice at once; it
// is called from Do, Configure and Run with no lock held, so it must be short. It
// may be set once, before the first Do.
func (c *Client) OnBreaker(fn func(worker string, open bool, reason string)) {
	c.breakers.told.Store(&fn)
}

// ResetBreaker closes the breaker of the worker at a base URL, in the form of
// fleet.NormaliseURL: another one is there by now. What is under way counts no more.
func (c *Client) ResetBreaker(url string) {
	if ep, err := ParseEndpoint(url); err == nil {
		c.breakers.reset(ep, "another worker is there")
	}
}

// OnTrial tells whether the breaker of the worker at such a URL is half open: one call at
// a time is made there.
func (c *Client) OnTrial(url string) bool {
	ep, err := ParseEndpoint(url)
	if err != nil {
		return false
	}
	b := c.breakers.of(ep)
	return b != nil && b.standing() == breakerHalfOpen
}

// Run closes connections that have been unused for IdleConnTimeout and ends the
// cooldowns of breakers, until ctx ends; it returns nil. Without it both is done
// when the worker is called next, and connections are closed by Close, but
// breakers are not forgotten.
func (c *Client) Run(ctx context.Context) error {
	idle := time.NewTicker(max(c.cfg.IdleConnTimeout/2, 10*time.Millisecond))
	defer idle.Stop()
	cooldowns := time.NewTicker(breakerSweep)
	defer cooldowns.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-idle.C:
			c.pool.sweep(now.Add(-c.cfg.IdleConnTimeout))
		case now := <-cooldowns.C:
			c.breakers.sweep(now)
		}
	}
}

// Close closes the unused connections and makes every further Do fail with
// ErrClosed. Calls under way go on; their connections are closed at their end.
// It is idempotent.
func (c *Client) Close() { c.pool.close() }

// Do sends req to the worker at ep, reads the head of its answer into hdr and
// returns the body, which the caller must Close. Every error is an *Error;
// then hdr holds nothing to rely on, but for the last case below.
//
// req's method, path with query (Header.RequestURI, used raw, after the
// endpoint's prefix), headers and body go out as they are, except that Do sets
// Host, the protocol version and Content-Length in req.Header and drops
// Transfer-Encoding there. Hop-by-hop fields are the caller's to strip
// (StripRequest). The body is not copied and must not change during Do; Do
// keeps no reference to req or hdr.
//
// A reused connection that fails before the first byte of the answer costs
// one resend on a new one; everything else is returned. Any status from 200 is
// an answer, no error. Of a worker whose breaker is open, the error wraps
// ErrBreakerOpen, nothing was sent, and hdr is as it was.
func (c *Client) Do(call *Call, ep Endpoint, req *fasthttp.Request, hdr *fasthttp.ResponseHeader) (*Body, error) {
	if err := c.prepare(call, ep, req); err != nil {
		return nil, err
	}
	p, err := c.breakers.enter(ep)
	if err != nil {
		c.counters.failed[PhasePrepare].Add(1)
		return nil, err
	}
	err = c.do(call, ep, req, hdr)
	c.breakers.leave(ep, p, err, hdr.StatusCode())
	if err != nil {
		return nil, err
	}
	return &call.body, nil
}

// prepare ends what was before and refuses what cannot be sent.
func (c *Client) prepare(call *Call, ep Endpoint, req *fasthttp.Request) error {
	_ = call.body.Close()
	c.counters.requests.Add(1)
	if err := c.admit(ep, req); err != nil {
		c.counters.failed[PhasePrepare].Add(1)
		return &Error{Phase: PhasePrepare, Addr: ep.addr, Err: err}
	}
	return nil
}

// do opens call.body.
func (c *Client) do(call *Call, ep Endpoint, req *fasthttp.Request, hdr *fasthttp.ResponseHeader) *Error {
	if cn := c.pool.get(ep.addr); cn != nil {
		c.counters.reused.Add(1)
		err := c.exchange(call, cn, ep, req, hdr)
		if err == nil || !err.stale() {
			return err
		}
		c.counters.resent.Add(1)
	}
	cn, err := c.dial(call, ep.addr)
	if err != nil {
		return err
	}
	return c.exchange(call, cn, ep, req, hdr)
}

func (c *Client) admit(ep Endpoint, req *fasthttp.Request) error {
	if c.pool.isClosed() {
		return ErrClosed
	}
	if ep.addr == "" {
		return fmt.Errorf("%w: no endpoint", ErrBadRequest)
	}
	return checkRequest(req)
}

// dial opens a connection, under the call's Cancel.
func (c *Client) dial(call *Call, addr string) (*conn, *Error) {
	ctx, stop := context.WithTimeout(context.Background(), c.cfg.ConnectTimeout)
	defer stop()
	defer call.dialing(nil)
	if !call.dialing(stop) {
		return nil, c.failure(call, &conn{addr: addr}, PhaseDial, ErrCancelled)
	}
	c.counters.dialled.Add(1)
	kind, at := network(addr)
	nc, err := c.dialer.DialContext(ctx, kind, at)
	if err != nil {
		return nil, c.failure(call, &conn{addr: addr}, PhaseDial, err)
	}
	c.counters.open.Add(1)
	cn := &conn{nc: nc, addr: addr, probe: newProbe(nc)}
	if br, ok := c.readers.Get().(*bufio.Reader); ok {
		br.Reset(cn)
		cn.br = br
	} else {
		cn.br = bufio.NewReaderSize(cn, c.cfg.ReadBuffer)
	}
	return cn, nil
}

// exchange sends the request over cn and opens call.body; cn is released if
// that fails.
func (c *Client) exchange(call *Call, cn *conn, ep Endpoint, req *fasthttp.Request, hdr *fasthttp.ResponseHeader) *Error {
	cn.begin()
	if !call.attach(cn) {
		return c.giveUp(call, cn, PhaseWrite, ErrCancelled)
	}
	body := req.Body()
	cn.writeHead(ep, req, body)
	sendErr := cn.send(body, c.cfg.WriteTimeout)
	if sendErr != nil && isTimeout(sendErr) {
		return c.giveUp(call, cn, PhaseWrite, sendErr)
	}
	// A worker may refuse a large body, answer and close while it is written:
	// what it said is in the socket.
	cn.armRead(time.Duration(c.patience.Load()), 0)
	if err := cn.readHead(hdr); err != nil {
		if errors.Is(sendErr, errAnswered) {
			sendErr = err // it closed without an answer
		}
		if sendErr != nil && cn.got == 0 {
			return c.giveUp(call, cn, PhaseWrite, sendErr)
		}
		return c.giveUp(call, cn, PhaseHead, err)
	}
	call.body.open(c, call, cn, req, hdr)
	if sendErr != nil {
		call.body.keep = false
	}
	return nil
}

func (c *Client) giveUp(call *Call, cn *conn, phase Phase, err error) *Error {
	e := c.failure(call, cn, phase, err)
	call.detach()
	c.release(cn)
	return e
}

// failure describes and counts a failure of a call.
func (c *Client) failure(call *Call, cn *conn, phase Phase, err error) *Error {
	e := &Error{Phase: phase, Addr: cn.addr, Reused: cn.reused, BytesRead: cn.got, Timeout: isTimeout(err), Err: err}
	if call.Cancelled() {
		e.Cancelled, e.Timeout, e.Err = true, false, ErrCancelled
		c.counters.cancelled.Add(1)
		return e
	}
	if e.stale() {
		return e // Do sends again; only what it returns counts as failed
	}
	if e.Timeout {
		c.counters.timedOut[phase].Add(1)
	}
	c.counters.failed[phase].Add(1)
	return e
}

// release closes a connection and keeps its read buffer for another.
func (c *Client) release(cn *conn) {
	c.pool.drop(cn)
	cn.br.Reset(nil)
	c.readers.Put(cn.br)
	cn.br, cn.big = nil, nil
}
