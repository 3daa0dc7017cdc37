package core

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// What those are told who wait in vain: for whom they waited, in which class and
// for how long. Names of workers are the operator's, who may have them shown: the
// answer to who is served has them too.

// awaited is what a request waits for, with its verb.
func (p *Partition) awaited(a *attempt) string {
	req := a.req
	switch {
	case a.exclusive && a.bound != nil:
		name := a.bound.Worker.String()
		if m := p.view.Load().byID[a.bound.Worker.ID]; m != nil {
			name = m.named(a.bound.Worker.Rank)
		}
		return "the session's worker " + name + " is busy"
	case req.Pin != nil && req.Pin.Rank != nil:
		return fmt.Sprintf("pinned worker %s, rank %d, is busy", req.Pin, *req.Pin.Rank)
	case req.Pin != nil:
		return "pinned worker " + req.Pin.String() + " is busy"
	case a.needs != "":
		return "every worker that may serve the request is busy"
	}
	return "every worker is busy"
}

// named is a worker for a message, with the rank where it has several.
func (m *member) named(rank uint32) string {
	name := fmt.Sprintf("%q", clip(m.record.Name, 80))
	if m.record.DPSize > 1 {
		name += fmt.Sprintf(", rank %d,", rank)
	}
	return name
}

// queueFull says that the class takes no more.
func (p *Partition) queueFull(a *attempt, err error) *Error {
	return &Error{Code: CodeQueueFull, Message: p.awaited(a) + ", and " + err.Error(), RetryAfter: retryAfter, Err: err}
}

// queueTimeout says that a request has waited as long as its class allows.
func (p *Partition) queueTimeout(a *attempt) *Error {
	return waitedInVain(p.awaited(a)+": no place within %s", a)
}

// sessionFull says that the class takes no more of those that wait for their
// session's first request.
func sessionFull(err error) *Error {
	return &Error{Code: CodeQueueFull, Message: "the session's first request is not decided yet, and " + err.Error(), RetryAfter: retryAfter, Err: err}
}

// sessionTimeout says that a request has waited for its session's first as long as
// its class allows.
func sessionTimeout(a *attempt) *Error {
	return waitedInVain("the session's first request was not decided within %s", a)
}

// waitedInVain has the time-out that ended the wait, or the caller's deadline where
// that was earlier. format has room for it.
func waitedInVain(format string, a *attempt) *Error {
	w := &a.waiting
	how := fmt.Sprintf("%s, the time-out of class %q", w.limit.Sub(w.since), w.place.Class)
	if now := time.Now(); now.Before(w.limit) {
		how = now.Sub(w.since).Round(time.Millisecond).String() + ", the deadline of the request"
	}
	return &Error{Code: CodeQueueTimeout, Message: fmt.Sprintf(format, how), RetryAfter: retryAfter}
}

// gaveUp is why a request whose context has ended waits no more.
func (p *Partition) gaveUp(ctx context.Context, a *attempt) error {
	err := context.Cause(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		return p.queueTimeout(a)
	}
	return err
}

// pinnedNotReady says why the pinned worker may not serve a request.
func (a *attempt) pinnedNotReady(m *member) *Error {
	code, field, why := CodeNoWorkers, "pin", "is "+string(m.lifecycle)
	switch {
	case m.lifecycle == Ejected:
		code = CodeWorkersEjected
	case m.lifecycle != Ready:
	case !a.placed.serves(m, a.req.Adapter):
		why = fmt.Sprintf("has not loaded adapter %q", clip(a.req.Adapter, 80))
	default:
		field, why = "constraints", "does not have what the request requires"
	}
	e := unavailable(code, "pinned worker %s %s", a.req.Pin, why)
	e.Field = field
	return e
}

// nobodyReady says why no worker may serve a request; out counts the ready ranks by
// what stands against them.
func (a *attempt) nobodyReady(v *view, model string, out *[standings]int) *Error {
	adapter := a.req.Adapter
	if adapter != "" && !slices.ContainsFunc(v.members, func(m *member) bool { return m.lifecycle == Ready && a.placed.serves(m, adapter) }) {
		return unavailable(CodeNoWorkers, "adapter %q of model %q is loaded on no ready worker", clip(adapter, 80), model)
	}
	ruledOut := func(field, by string) *Error {
		e := unavailable(CodeNoWorkers, "no worker of model %q is ready for this request: %s", model, by)
		e.Field = field
		return e
	}
	switch {
	case out[unsuited] > 0 && adapter == "" && out[notAllowed] > 0:
		return ruledOut("constraints", "none of those that are ready and allowed has what it requires")
	case out[unsuited] > 0 && adapter == "":
		return ruledOut("constraints", "none of those that are ready has what it requires")
	case out[notAllowed] > 0:
		return ruledOut("allow", "none of those that are ready is in the allow-set")
	}
	return unavailable(CodeNoWorkers, "no worker of model %q is ready for this request", model)
}
