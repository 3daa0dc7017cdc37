package frontend

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"
)

const (
	drainPoll   = 20 * time.Millisecond
	arrivalTime = time.Second            // for requests that are still being sent
	cutPatience = 250 * time.Millisecond // for answers of requests that were cut
	cutAtMost   = 5 * time.Second        // for their goroutines
)

// calls knows the requests under way and the connections of clients.
type calls struct {
	draining atomic.Bool
	drained  chan struct{} // closed at the end of Drain

	mu       sync.Mutex // guards all below
	active   map[*exchange]struct{}
	conns    map[*conn]struct{}
	listener net.Listener
	err      error // of Drain
}

func (c *calls) start() {
	c.drained = make(chan struct{})
	c.active, c.conns = map[*exchange]struct{}{}, map[*conn]struct{}{}
}

func (c *calls) isDraining() bool { return c.draining.Load() }

func (c *calls) waitDrained() { <-c.drained }

// add registers a request; false means that a drain has begun.
func (c *calls) add(x *exchange) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.draining.Load() {
		return false
	}
	c.active[x] = struct{}{}
	x.counted = true
	return true
}

func (c *calls) remove(x *exchange) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.active, x)
}

// underWay are the requests that are registered.
func (c *calls) underWay() []*exchange {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := make([]*exchange, 0, len(c.active))
	for x := range c.active {
		list = append(list, x)
	}
	return list
}

// connState keeps track of the connections.
func (c *calls) connState(nc net.Conn, state fasthttp.ConnState) {
	cn, ok := nc.(*conn)
	if !ok {
		return
	}
	switch state {
	case fasthttp.StateActive:
		cn.busy.Store(true)
	case fasthttp.StateIdle:
		cn.arrived.Store(false)
		cn.busy.Store(false)
	case fasthttp.StateNew:
		c.mu.Lock()
		c.conns[cn] = struct{}{}
		c.mu.Unlock()
	case fasthttp.StateClosed, fasthttp.StateHijacked:
		c.mu.Lock()
		delete(c.conns, cn)
		c.mu.Unlock()
	}
}

// closeConns closes the connections without a request; with half also those
// whose request is not here whole; or all. fasthttp itself takes a connection
// that has had no request for idle only after five seconds.
func (c *calls) closeConns(half, all bool) {
	c.mu.Lock()
	var list []*conn
	for cn := range c.conns {
		if all || !cn.busy.Load() || half && !cn.arrived.Load() {
			list = append(list, cn)
		}
	}
	c.mu.Unlock()
	for _, cn := range list {
		_ = cn.Conn.Close() // it is gone either way
	}
}

// cut ends all requests under way and returns how many there were.
func (c *calls) cut() int {
	list := c.underWay()
	for _, x := range list {
		x.end(errGraceOver)
	}
	return len(list)
}

// open remembers the listener; false means that a drain has begun.
func (c *calls) open(ln net.Listener) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.draining.Load() {
		return false
	}
	c.listener = ln
	return true
}

// beginDrain is true for the first caller.
func (c *calls) beginDrain() (ln net.Listener, first bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.draining.Swap(true) {
		return nil, false
	}
	return c.listener, true
}

// Drain ends the server. At once it is not ready, refuses new requests and
// takes no connections; requests under way may end within the grace, or until
// ctx ends, and are cut then, for which it returns ErrGrace. Requests that are
// still being sent have a second. It returns when all is over; further calls
// wait for the first.
func (s *Server) Drain(ctx context.Context) error {
	c := &s.calls
	ln, first := c.beginDrain()
	if !first {
		select {
		case <-c.drained:
			return c.err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	defer close(c.drained)
	if ln != nil {
		c.err = errors.Join(ln.Close(), s.shut(ctx))
	}
	return c.err
}

// shut waits for the requests under way.
func (s *Server) shut(ctx context.Context) error {
	grace, cancel := context.WithTimeout(ctx, s.cfg.Load().Grace)
	defer cancel()
	stop, stopNow := context.WithCancel(context.WithoutCancel(ctx))
	defer stopNow()
	down := make(chan error, 1)
	go func() { down <- s.http.ShutdownWithContext(stop) }()
	tick := time.NewTicker(drainPoll)
	defer tick.Stop()
	over, begun := grace.Done(), time.Now()
	var result error
	var cutAt time.Time
	for {
		s.calls.closeConns(time.Since(begun) > arrivalTime, !cutAt.IsZero() && time.Since(cutAt) > cutPatience)
		select {
		case err := <-down:
			return errors.Join(result, err)
		case <-over:
			over, cutAt = nil, time.Now()
			if n := s.calls.cut(); n > 0 {
				result = fmt.Errorf("%w: %d were cut", ErrGrace, n)
			}
		case <-tick.C:
			if !cutAt.IsZero() && time.Since(cutAt) > cutAtMost {
				stopNow()
			}
		}
	}
}
