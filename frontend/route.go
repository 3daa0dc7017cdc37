package frontend

import (
	"errors"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/core/reserve"
	"github.com/routerd/routerd/upstream"
)

// routeRequest asks the core for a worker and sends the request there; until
// the first byte of an answer it may do so again.
func (s *Server) routeRequest(x *exchange) error {
	s.budget.earn()
	var last error
	for {
		sel, err := s.core.Select(x.life, &x.req)
		if err != nil {
			s.nobodyReady(x, err)
			return s.noOther(x, last, err)
		}
		x.sel, x.told = sel, false
		x.lease.take(sel)
		again, err := s.forward(x, sel)
		held := errors.Is(err, upstream.ErrBreakerOpen)
		if !held || x.req.Attempt == 0 {
			last = err // what a worker did that was asked counts for more
		}
		if !again && !held {
			return err
		}
		kind := reserve.Completed // a refusal is an answer
		if err != nil {
			kind = outcomeOf(err)
		}
		x.drop(kind)
		if !again {
			return s.noOther(x, last, err)
		}
		x.req.Exclude = append(x.req.Exclude, sel.Worker)
		x.req.Attempt++
		if held {
			x.held++ // it reached nobody, so the next is no further attempt
			continue
		}
		s.metrics.retries.Inc()
	}
}

// mostHeld bounds how often open breakers may hold one request back.
const mostHeld = 4

// noOther ends a request that no further worker takes: with what the last one
// did that was asked, if there was one. A refusal that was kept is the answer
// then.
func (s *Server) noOther(x *exchange, last, err error) error {
	switch {
	case x.req.Attempt == 0 || x.cause(nil) != nil:
		return err
	case last != nil:
		return last
	}
	x.answerKept()
	return nil
}

// nobodyReady logs why there is no worker for a request, with what only an operator may
// know. What the request itself rules out is its caller's affair.
func (s *Server) nobodyReady(x *exchange, err error) {
	e, ok := errors.AsType[*core.Error](err)
	if !ok || e.Code != core.CodeNoWorkers && e.Code != core.CodeWorkersEjected || e.Field != "" && e.Err == nil {
		return
	}
	why := err
	if e.Err != nil {
		why = e.Err
	}
	s.log.Warn("no worker is ready", "partition", x.req.Partition, "request", x.id, "attempt", x.req.Attempt, "err", why)
}

// mayRetry tells whether a failed attempt may be followed by another, and takes
// that from the budget. A worker that did not answer in time may still be at
// work, so that is not repeated. What an open breaker held back was sent to
// nobody and costs nothing.
func (s *Server) mayRetry(x *exchange, err error) bool {
	if errors.Is(err, upstream.ErrBreakerOpen) {
		return x.req.Pin == nil && x.held < mostHeld && x.cause(nil) == nil
	}
	if !s.mayTryOther(x) {
		return false
	}
	e, ok := errors.AsType[*upstream.Error](err)
	if !ok || !e.Retryable() || e.Timeout && e.Phase != upstream.PhaseDial {
		return false
	}
	return s.budget.spend()
}

// mayTryOther tells whether another worker may be asked at all.
func (s *Server) mayTryOther(x *exchange) bool {
	return x.req.Pin == nil && int(x.req.Attempt)-x.held < x.cfg.Retries && x.cause(nil) == nil
}

// unreached reports a worker that failed on the network before it answered, or
// that is not called because it has failed too often.
func (s *Server) unreached(x *exchange, sel *core.Selection, err *upstream.Error) {
	switch {
	case err.Cancelled:
	case errors.Is(err, upstream.ErrBreakerOpen):
		s.core.Inhibit(sel.Worker.ID)
		if x.cause(nil) == nil {
			s.log.Warn("worker not called", "worker", sel.Name, "rank", sel.Worker.Rank, "request", x.id,
				"attempt", x.req.Attempt, "err", err)
		}
	case err.Phase != upstream.PhasePrepare:
		s.core.Inhibit(sel.Worker.ID)
		x.tell(failureOf(err))
		s.brokeOff(x, sel, err)
	}
}

// heard reports what a worker's answer says of the worker: 429 and 503 are that
// it takes no more for now, anything else that it is well.
func (s *Server) heard(sel *core.Selection, status int, h *fasthttp.ResponseHeader) {
	if status == fasthttp.StatusTooManyRequests || status == fasthttp.StatusServiceUnavailable {
		s.core.Refused(sel.Worker.ID, retryAfterOf(h, time.Now()))
		return
	}
	s.core.Reached(sel.Worker.ID)
}

// longestRefusal is more than anybody waits for a worker.
const longestRefusal = time.Hour

// retryAfterOf reads Retry-After, in seconds or as a date; 0 for none, and for
// one that cannot be read or has passed.
func retryAfterOf(h *fasthttp.ResponseHeader, now time.Time) time.Duration {
	v := h.Peek(fasthttp.HeaderRetryAfter)
	if n, err := strconv.ParseUint(string(v), 10, 64); err == nil {
		return time.Duration(min(n, uint64(longestRefusal/time.Second))) * time.Second
	}
	at, err := fasthttp.ParseHTTPDate(v)
	if err != nil {
		return 0
	}
	return min(max(at.Sub(now), 0), longestRefusal)
}

// brokeOff counts and logs a worker's failure, unless it is the client that
// has gone.
func (s *Server) brokeOff(x *exchange, sel *core.Selection, err error) {
	if x.cause(nil) != nil {
		return
	}
	s.metrics.workerFailed(sel.Name)
	s.log.Warn("worker failed", "worker", sel.Name, "rank", sel.Worker.Rank, "request", x.id,
		"attempt", x.req.Attempt, "err", err)
}

// workers are the names that the core knows.
func (s *Server) workers() map[string]struct{} {
	names := map[string]struct{}{}
	for _, p := range s.core.Partitions() {
		for _, r := range p.Ranks {
			names[r.Name] = struct{}{}
		}
	}
	return names
}
