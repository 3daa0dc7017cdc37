package core

import (
	"fmt"
	"slices"
	"time"

	"github.com/routerd/routerd/fleet"
)

// candidates fills a.rows with the rows of the view that may serve the request.
// Eligibility is yes or no and comes before any policy: the caller's allow-set
// and pin, the adapter, exclusions, lifecycle; passOver then adds inhibition.
func (a *attempt) candidates(v *view, p *Partition) error {
	req := a.req
	a.rows = a.rows[:0]
	if len(v.rows) == 0 {
		return unavailable(CodeNoWorkers, "model %q has no workers", p.key.Model)
	}
	if v.ready && req.Allow == nil && req.Pin == nil && req.Adapter == "" && len(req.Exclude) == 0 {
		for i := range v.rows {
			a.rows = append(a.rows, int32(i))
		}
		return nil
	}
	pinned, err := a.allow(v)
	if err != nil {
		return err
	}
	var ejected, excluded bool
	for i := range v.rows {
		r := &v.rows[i]
		switch {
		case !a.allowed[r.index], pinned != nil && r.member != pinned,
			pinned != nil && req.Pin.Rank != nil && *req.Pin.Rank != r.worker.Rank,
			!r.member.serves(req.Adapter):
		case r.member.lifecycle != Ready:
			ejected = ejected || r.member.lifecycle == Ejected
		case slices.ContainsFunc(req.Exclude, func(w fleet.Worker) bool { return w.ID == r.worker.ID }):
			excluded = true
		default:
			a.rows = append(a.rows, int32(i))
		}
	}
	switch {
	case len(a.rows) > 0:
		return nil
	case excluded:
		return unavailable(CodeNoCandidates, "no other worker of model %q is ready", p.key.Model)
	case ejected:
		return unavailable(CodeWorkersEjected, "the workers of model %q are ejected", p.key.Model)
	}
	return unavailable(CodeNoWorkers, "no worker of model %q is ready for this request", p.key.Model)
}

// passOver takes the candidates out that are inhibited, unless that leaves
// nobody. A pin stands: its worker is tried whatever happened before.
func (a *attempt) passOver(v *view, inhibited *inhibitions) {
	if inhibited == nil || a.req.Pin != nil {
		return
	}
	now := time.Now()
	out := func(row int32) bool { return inhibited.holds(v.rows[row].member, now) }
	if slices.ContainsFunc(a.rows, func(row int32) bool { return !out(row) }) {
		a.rows = slices.DeleteFunc(a.rows, out)
	}
}

// allow marks the members of the allow-set and returns the pinned one, if any.
func (a *attempt) allow(v *view) (pinned *member, err error) {
	req := a.req
	n := len(v.members)
	a.allowed = slices.Grow(a.allowed[:0], n)[:n]
	for i := range a.allowed {
		a.allowed[i] = req.Allow == nil
	}
	for _, s := range req.Allow {
		if m := v.find(s); m != nil {
			a.allowed[v.index(m)] = true
		}
	}
	if req.Pin == nil {
		return nil, nil
	}
	if req.Pin.ID != nil {
		pinned = v.byID[*req.Pin.ID]
	} else {
		pinned = v.find(req.Pin.Name)
	}
	if pinned == nil {
		return nil, &Error{Code: CodePinUnknown, Message: fmt.Sprintf("pinned worker %s is not known", req.Pin), Field: "pin"}
	}
	if rank := req.Pin.Rank; rank != nil && !slices.Contains(pinned.record.Ranks(), *rank) {
		return nil, &Error{
			Code: CodePinUnknown, Field: "pin",
			Message: fmt.Sprintf("pinned worker %s has no rank %d; it has ranks %d to %d", req.Pin, *rank,
				pinned.record.DPStart, pinned.record.DPStart+pinned.record.DPSize-1),
		}
	}
	if !a.allowed[v.index(pinned)] {
		return nil, &Error{Code: CodePinNotAllowed, Message: fmt.Sprintf("pinned worker %s is not in the allow-set", req.Pin), Field: "pin"}
	}
	return pinned, nil
}

// String is the pin's id or quoted name, without the rank.
func (p *Pin) String() string {
	if p.ID != nil {
		return p.ID.String()
	}
	return fmt.Sprintf("%q", clip(p.Name, 80))
}
