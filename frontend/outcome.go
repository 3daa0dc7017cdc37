package frontend

import (
	"errors"

	"github.com/valyala/fasthttp"

	"github.com/routerd/routerd/core/reserve"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/upstream"
)

// Outcome is what one attempt says of its worker's health.
type Outcome string

// The outcomes. An attempt that says nothing of the worker has none: the client
// went, the request was at fault (4xx), the worker is full (429, 503), its breaker
// was open, this machine lacked what a connection needs, or a stream came whole
// but for its last event or with an error in it, which may be the request's.
const (
	// Success is an answer below 400 that was relayed to its end.
	Success Outcome = "success"
	// ConnectFailed is a connection that was not made.
	ConnectFailed Outcome = "connect_failed"
	// Timeout is a time limit that struck while the request was sent, before the
	// head of the answer, or within it.
	Timeout Outcome = "timeout"
	// ServerError is an answer of 500, 502, 504 or another 5xx but 501, 503, 505, or
	// a redirect, which no engine answers.
	ServerError Outcome = "server_error"
	// BrokenStream is a connection that broke before the answer was complete, or
	// an answer that is no proper HTTP.
	BrokenStream Outcome = "broken_stream"
)

// Outcomes hears how attempts ended, at most once for each. Passive is called on
// the request's goroutine: it must be short and safe for concurrent use.
type Outcomes interface {
	Passive(id fleet.WorkerID, o Outcome)
}

// unheard is Outcomes for nobody.
type unheard struct{}

// Passive does nothing.
func (unheard) Passive(fleet.WorkerID, Outcome) {}

var _ Outcomes = unheard{}

// ReportTo has the outcome of each attempt reported; nil has none reported, as
// from the start. It is to be called before Serve.
func (s *Server) ReportTo(to Outcomes) {
	if to == nil {
		to = unheard{}
	}
	s.outcomes = to
}

// tell reports what the attempt under way says of its worker, once.
func (x *exchange) tell(o Outcome) {
	if o == "" || x.told || x.sel == nil {
		return
	}
	x.told = true
	x.s.outcomes.Passive(x.sel.Worker.ID, o)
}

// tellEnd reports how the relaying of an answer ended.
func (x *exchange) tellEnd(kind reserve.Kind) {
	switch {
	case kind == reserve.Completed && x.status < fasthttp.StatusBadRequest:
		x.tell(Success)
	case kind == reserve.Failed && x.readErr != nil:
		x.tell(failureOf(x.readErr))
	}
}

// failureOf is what a failed call says of its worker.
func failureOf(err error) Outcome {
	e, ok := errors.AsType[*upstream.Error](err)
	switch {
	case !ok || e.Cancelled || e.Local() || e.Phase == upstream.PhasePrepare:
		return ""
	case e.Phase == upstream.PhaseDial:
		return ConnectFailed
	case e.Timeout:
		return Timeout
	}
	return BrokenStream
}
