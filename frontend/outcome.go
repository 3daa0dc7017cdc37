package frontend

import (
	"errors"

	"github.com/valyala/fasthttp"

	"github.com/routerd/routerd/core/reserve"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/upstream"
)

// Outcomes hears how attempts ended, at most once for each that says something of its
// worker. Passive is called on the request's goroutine: it must be short and safe for
// concurrent use.
type Outcomes interface {
	Passive(id fleet.WorkerID, o fleet.Outcome)
}

// unheard is Outcomes for nobody.
type unheard struct{}

// Passive does nothing.
func (unheard) Passive(fleet.WorkerID, fleet.Outcome) {}

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
func (x *exchange) tell(o fleet.Outcome) {
	if o == fleet.NoOutcome || x.told || x.sel == nil {
		return
	}
	x.told = true
	x.s.outcomes.Passive(x.sel.Worker.ID, o)
}

// tellEnd reports how the relaying of an answer ended.
func (x *exchange) tellEnd(kind reserve.Kind) {
	switch {
	case kind == reserve.Completed && x.status < fasthttp.StatusBadRequest:
		x.tell(fleet.Success)
	case kind == reserve.Failed && x.readErr != nil:
		x.tell(failureOf(x.readErr))
	}
}

// failureOf is what a failed call says of its worker.
func failureOf(err error) fleet.Outcome {
	e, ok := errors.AsType[*upstream.Error](err)
	switch {
	case !ok || e.Cancelled || e.Local() || e.Phase == upstream.PhasePrepare:
		return fleet.NoOutcome
	case e.Phase == upstream.PhaseDial:
		return fleet.ConnectFailed
	case e.Timeout:
		return fleet.Timeout
	}
	return fleet.BrokenStream
}
