package frontend

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/routerd/routerd/clientwatch"
	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/core/reserve"
	"github.com/routerd/routerd/upstream"
)

// exchange is one request of a client and what comes of it. It is owned by the
// connection's goroutine, except for end, which the watcher, a drain and the scan
// of leases call, and for the lease.
type exchange struct {
	s       *Server
	cfg     *Config // as it was when the request began
	ctx     *fasthttp.RequestCtx
	id      string
	route   *route // nil for an unknown path
	allow   string // of a wrong method
	old     bool   // HTTP/1.0
	closing bool   // the connection ends with this answer
	started time.Time

	small *[]byte // buffer of the request's body, from the pool; may be nil
	whole bool    // the request's body was read
	scan  scan
	model string // metric label: a registered base model
	req   core.Request

	//nolint:containedctx // the request's own lifetime, which several phases ask
	life       context.Context
	cancel     context.CancelCauseFunc
	call       upstream.Call
	unregister func() bool
	began      bool
	counted    bool // among the calls, and in flight
	series     *modelMetrics

	sel       *core.Selection
	told      bool  // what the attempt says of sel's worker
	held      int   // attempts that an open breaker held back
	lease     lease // of sel's booking
	body      *upstream.Body
	scratch   *[]byte // buffer of head, from the pool; may be nil
	head      []byte  // bytes of the body that were read before the answer began
	meter     meter
	streaming bool // the answer's stream owns the exchange
	ended     bool // the worker's body was read to its end
	readErr   error
	status    int
	firstAt   time.Time
	closed    bool
}

func (s *Server) open(ctx *fasthttp.RequestCtx) *exchange {
	h := &ctx.Request.Header
	return &exchange{s: s, cfg: s.cfg.Load(), ctx: ctx, id: s.requestIDOf(h), old: !h.IsHTTP11(), started: time.Now()}
}

// outdated tells whether the connection was accepted under another HalfClose
// than is in force.
func (x *exchange) outdated() bool {
	c, ok := x.ctx.Conn().(*conn)
	return ok && c.halfClose != x.cfg.HalfClose
}

// path is the raw path of the request, without its query.
func (x *exchange) path() []byte {
	uri := x.ctx.Request.Header.RequestURI()
	if len(uri) > 0 && uri[0] != '/' { // absolute form
		_, rest, ok := bytes.Cut(uri, []byte("://"))
		i := bytes.IndexByte(rest, '/')
		if !ok || i < 0 {
			return nil
		}
		uri = bytes.Clone(rest[i:])
		x.ctx.Request.Header.SetRequestURIBytes(uri)
	}
	path, _, _ := bytes.Cut(uri, []byte("?"))
	return path
}

// begin makes the exchange one that ends with its client, or with a drain.
func (x *exchange) begin() error {
	x.began = true
	x.lease.client, _ = x.ctx.Conn().(*conn)
	x.life, x.cancel = context.WithCancelCause(context.Background())
	if !x.s.calls.add(x) {
		return errDraining
	}
	x.series = x.s.metrics.begin(x.model)
	unregister, ok := clientwatch.Find(x.ctx.Conn()).OnGone(func() { x.end(errClientGone) })
	x.unregister = unregister
	if !ok {
		x.end(errClientGone)
		return errClientGone
	}
	return nil
}

// end cancels the exchange in whatever phase it is. It is short and safe for
// concurrent use.
func (x *exchange) end(cause error) {
	x.cancel(cause)
	x.call.Cancel()
}

// cause is why the exchange was cancelled, or err.
func (x *exchange) cause(err error) error {
	if x.began {
		if c := context.Cause(x.life); c != nil {
			return c
		}
	}
	return err
}

// fail answers an error. Nothing of an answer has been sent yet.
func (x *exchange) fail(err error) {
	a := answerTo(x.cause(err))
	x.drop(outcomeOf(err))
	x.streaming, x.status = false, a.status
	a.write(&x.ctx.Response)
	x.ctx.Response.Header.Set(headerRequestID, x.id)
	if a.decision != "" {
		x.ctx.Response.Header.Set(headerDecision, a.decision)
	}
	if x.allow != "" {
		x.ctx.Response.Header.Set(fasthttp.HeaderAllow, x.allow)
	}
	if x.closing {
		x.ctx.SetConnectionClose()
	}
}

// outcomeOf tells a booking how its attempt failed.
func outcomeOf(err error) reserve.Kind {
	if e, ok := errors.AsType[*upstream.Error](err); ok && !e.Cancelled && !errors.Is(e, upstream.ErrClosed) {
		return reserve.Failed
	}
	return reserve.Cancelled
}

// drop ends the attempt under way: the connection to the worker, then the
// booking. It does nothing when there is none.
func (x *exchange) drop(kind reserve.Kind) {
	if x.body != nil {
		_ = x.body.Close() // always nil
		x.body = nil
	}
	if x.sel == nil {
		return
	}
	x.sel.Reservation.Release(reserve.Outcome{Kind: kind, FirstToken: x.firstAt})
	x.sel = nil
}

// close ends the exchange; it is the one place that does, for every outcome.
func (x *exchange) close() {
	if x.closed {
		return
	}
	x.closed = true
	kind := x.outcome()
	name := ""
	if x.sel != nil {
		name = x.sel.Name
	}
	x.tellEnd(kind)
	x.drop(kind)
	x.s.buffers.put(x.scratch)
	x.scratch, x.head = nil, nil
	x.forgetBody()
	if x.began {
		if x.unregister != nil {
			x.unregister()
		}
		x.s.calls.remove(x)
		x.cancel(nil)
	}
	x.s.finished(x, kind, name)
}

// outcome is how the exchange ended, once an answer was begun.
func (x *exchange) outcome() reserve.Kind {
	switch {
	case x.began && errors.Is(context.Cause(x.life), errSilent):
		return reserve.Expired
	case x.began && context.Cause(x.life) != nil:
		return reserve.Cancelled
	case !x.streaming:
		return reserve.Completed
	case x.readErr != nil:
		return reserve.Failed
	case !x.ended:
		return reserve.Cancelled // the client did not take it all
	case x.meter.broken():
		return reserve.Failed
	}
	return reserve.Completed
}

// finished counts and logs the exchange.
func (s *Server) finished(x *exchange, kind reserve.Kind, worker string) {
	name := "other"
	if x.route != nil {
		name = x.route.name
	}
	status := x.status
	if status == 0 {
		status = x.ctx.Response.StatusCode()
	}
	cause := x.cause(nil)
	gone := kind == reserve.Cancelled && !errors.Is(cause, errGraceOver)
	if x.began && gone && (cause != nil || x.streaming) {
		s.metrics.cancelled.Inc()
		status = 499
	}
	now := time.Now()
	s.metrics.end(x, name, status, now)
	if x.streaming && kind == reserve.Failed {
		s.metrics.workerFailed(worker)
		s.log.Warn("answer of worker broke off", "worker", worker, "request", x.id, "err", x.readErr)
	}
	if s.log.Enabled(context.Background(), slog.LevelDebug) {
		s.log.Debug("request served", "route", name, "status", status, "worker", worker, "request", x.id,
			"outcome", string(kind), "took", now.Sub(x.started))
	}
}
