package core

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/routerd/routerd/fleet"
)

// candidates fills a.rows with the rows of the view that may serve the request.
// Eligibility is yes or no and comes before any policy: the caller's allow-set
// and pin, its constraints, the adapter, exclusions, lifecycle; passOver then adds
// inhibition, and what the host says.
func (a *attempt) candidates(v *view, p *Partition) error {
	req := a.req
	a.rows = a.rows[:0]
	if len(v.rows) == 0 {
		return noWorkers(p.key)
	}
	if v.ready && req.Allow == nil && req.Pin == nil && req.Adapter == "" && len(req.Exclude) == 0 && req.Constraints.empty() {
		for i := range v.rows {
			a.rows = append(a.rows, int32(i))
		}
		return nil
	}
	a.placed = p.adapters.Load()
	pinned, err := a.allow(v)
	if err != nil {
		return err
	}
	ejected := false
	var out [standings]int
	for i := range v.rows {
		r := &v.rows[i]
		is := a.standing(r, pinned)
		if r.member.lifecycle == Ready {
			out[is]++
		}
		switch is {
		case eligible:
			a.rows = append(a.rows, int32(i))
		case notReady:
			ejected = ejected || r.member.lifecycle == Ejected
		}
	}
	a.narrow(v, a.placed)
	switch {
	case len(a.rows) > 0:
		return nil
	case out[failedBefore] > 0:
		return unavailable(CodeNoCandidates, "no other worker of model %q is ready", p.key.Model)
	}
	var e *Error
	switch {
	case pinned != nil:
		e = a.pinnedNotReady(pinned)
	case ejected:
		e = unavailable(CodeWorkersEjected, "the workers of model %q are ejected", p.key.Model)
	default:
		e = a.nobodyReady(v, p.key.Model, &out)
	}
	e.Err = a.unready(v, pinned)
	return e
}

// standing is whether a rank may serve a request and, if not, the first reason.
type standing uint8

const (
	eligible     standing = iota
	notAllowed            // by the allow-set or the pin
	unsuited              // by the constraints or the adapter
	notReady              // by its lifecycle
	failedBefore          // it has failed this request
	standings
)

// standing tells how a row stands to the request; allow must have been called.
func (a *attempt) standing(r *viewRow, pinned *member) standing {
	req := a.req
	switch {
	case !a.allowed[r.index], pinned != nil && r.member != pinned,
		pinned != nil && req.Pin.Rank != nil && *req.Pin.Rank != r.worker.Rank:
		return notAllowed
	case !a.placed.serves(r.member, req.Adapter), !req.Constraints.met(&r.member.record):
		return unsuited
	case r.member.lifecycle != Ready:
		return notReady
	case slices.ContainsFunc(req.Exclude, func(w fleet.Worker) bool { return w.ID == r.worker.ID }):
		return failedBefore
	}
	return eligible
}

// met tells whether a worker has what the constraints require.
func (c *Constraints) met(rec *fleet.Record) bool {
	for _, t := range c.RequiredTaints {
		if !slices.Contains(rec.Taints, t) {
			return false
		}
	}
	for key, value := range c.RequiredLabels {
		if got, ok := rec.Labels[key]; !ok || got != value {
			return false
		}
	}
	return true
}

// preference is the factor by which the preferred taints weigh a worker.
func (c *Constraints) preference(rec *fleet.Record) float64 {
	if len(c.PreferredTaints) == 0 {
		return 1
	}
	var sum float64
	for _, t := range rec.Taints {
		sum += c.PreferredTaints[t]
	}
	return math.Exp(-math.Tanh(sum))
}

// passOver takes the candidates out that are inhibited or refuse, unless that
// leaves nobody, and those that the host rules out. A pin stands against the former: its
// worker is tried whatever happened before.
func (p *Partition) passOver(a *attempt, v *view, inhibited *inhibitions, refused *refusals) error {
	a.passedOver = false
	if err := p.hostNarrows(a, v); err != nil {
		return err
	}
	if inhibited == nil && refused == nil || a.req.Pin != nil {
		return nil
	}
	p.hearRefusing(a, v, refused)
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	out := func(row int32) bool {
		r := &v.rows[row]
		// The worker of a bound session is waited for.
		return inhibited.holds(r.member, now) || refused != nil && (!a.exclusive || r.worker != a.bound.Worker) && p.refusing(refused, r, now)
	}
	if slices.ContainsFunc(a.rows, func(row int32) bool { return !out(row) }) {
		before := len(a.rows)
		a.rows = slices.DeleteFunc(a.rows, out)
		a.passedOver = len(a.rows) < before // not for ever: the next snapshot looks again
	}
	return nil
}

// hostNarrows takes the candidates out that the host rules out. They count no
// more either for a request that has to wait, until the workers change.
func (p *Partition) hostNarrows(a *attempt, v *view) error {
	host := p.core.host.Eligibility
	if host == nil {
		return nil
	}
	n := len(a.rows)
	a.workers = slices.Grow(a.workers[:0], n)[:n]
	a.keep = slices.Grow(a.keep[:0], n)[:n]
	for i, row := range a.rows {
		a.workers[i], a.keep[i] = v.rows[row].worker, true
	}
	host.Narrow(a.req, a.workers, a.keep)
	kept := a.rows[:0]
	for i, row := range a.rows {
		if a.keep[i] {
			kept = append(kept, row)
		}
	}
	if a.rows = kept; len(kept) == 0 {
		return unavailable(CodeNoCandidates, "no worker of model %q may serve this request now", p.key.Model)
	}
	a.waiting.rows, a.waiting.seen = append(a.waiting.rows[:0], kept...), v
	return nil
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
	pinned = v.named(req.Pin)
	if err := a.pinAgainstTarget(v, pinned); err != nil {
		return nil, err
	}
	switch {
	case pinned == nil && !req.Pin.in(req.Allow), pinned != nil && !a.allowed[v.index(pinned)]:
		return nil, &Error{Code: CodePinNotAllowed, Message: fmt.Sprintf("pinned worker %s is not in the allow-set", req.Pin), Field: "pin"}
	case pinned == nil:
		return nil, &Error{Code: CodePinUnknown, Message: fmt.Sprintf("pinned worker %s is not known", req.Pin), Field: "pin"}
	}
	if rank := req.Pin.Rank; rank != nil && !slices.Contains(pinned.record.Ranks(), *rank) {
		return nil, &Error{
			Code: CodePinUnknown, Field: "pin",
			Message: fmt.Sprintf("pinned worker %s has no rank %d; it has ranks %d to %d", req.Pin, *rank,
				pinned.record.DPStart, pinned.record.DPStart+pinned.record.DPSize-1),
		}
	}
	return pinned, nil
}

// pinAgainstTarget refuses a pin that contradicts the affinity target of the request,
// where that could serve it. pinned is nil for a pin to nobody.
func (a *attempt) pinAgainstTarget(v *view, pinned *member) error {
	pin, target := a.req.Pin, a.req.Target
	if target == nil {
		return nil
	}
	m := v.named(target)
	if !slices.ContainsFunc(v.rows, func(r viewRow) bool {
		return r.member == m && (target.Rank == nil || r.worker.Rank == *target.Rank) && a.standing(&r, nil) == eligible
	}) {
		return nil // nothing to follow
	}
	switch {
	case m != pinned:
		return &Error{Code: CodePinNotAllowed, Field: "pin", Message: fmt.Sprintf("pinned worker %s is not the affinity target %s", pin, target)}
	case pin.Rank != nil && target.Rank != nil && *pin.Rank != *target.Rank:
		e := unavailable(CodeNoCandidates, "the pinned rank %d of worker %s is not the affinity target's, %d", *pin.Rank, pin, *target.Rank)
		e.Field = "pin"
		return e
	}
	return nil
}

// in tells whether an allow-set lists the worker that the pin names, also where
// nobody knows it.
func (p *Pin) in(allow []string) bool {
	return allow == nil || slices.ContainsFunc(allow, func(s string) bool {
		id, err := fleet.ParseWorkerID(s)
		return s == p.Name || err == nil && p.ID != nil && id == *p.ID
	})
}

// String is the pin's id or quoted name, without the rank.
func (p *Pin) String() string {
	if p.ID != nil {
		return p.ID.String()
	}
	return fmt.Sprintf("%q", clip(p.Name, 80))
}
