package core

import (
	"context"
	"time"

	"github.com/routerd/routerd/core/policy"
)

// asked is the revision that an attempt asked and what that took.
type asked struct {
	policy   string
	revision int
	digests  []string
	stages   []policy.StageName
	canary   bool
	// tripped tells that the revision had tripped: its fallback decided, and
	// nobody was asked.
	tripped bool
	// fuel and deciding are over all decisions that the revision made for the
	// request, those that were made again included.
	fuel     uint64
	deciding time.Duration
}

// stagesOf names the stages of a revision. A partition's requests mostly ask the
// same one, so that the attempt keeps the names of the last.
func (a *attempt) stagesOf(l *policy.Lease) []policy.StageName {
	if s := &a.lastStages; s.names == nil || s.policy != l.Name() || s.revision != l.Number() {
		*s = stageNames{l.Name(), l.Number(), l.Stages()}
	}
	return a.lastStages.names
}

// stageNames are the stages of a revision, shared and never changed.
type stageNames struct {
	policy   string
	revision int
	names    []policy.StageName
}

// ask is what a canary chooses by. It says the same at all attempts of a
// request, so that the request stays on its side.
func (a *attempt) ask() policy.Ask {
	ask := policy.Ask{Seed: a.seed, Session: a.req.session(), Overrides: a.req.Overrides}
	if len(a.req.Headers) > 0 {
		ask.Header = a.req.header
	}
	return ask
}

// asks notes the revision that the attempt is about to ask.
func (a *attempt) asks(l *policy.Lease) {
	if w := &a.asked; w.policy != l.Name() || w.revision != l.Number() {
		a.asked = asked{policy: l.Name(), revision: l.Number(), digests: l.Digests(), stages: a.stagesOf(l)}
	}
	a.asked.canary, a.asked.tripped = l.Canary, false
}

// letDecide lets the revision decide and notes what that took.
func (a *attempt) letDecide(ctx context.Context, l *policy.Lease) error {
	began := time.Now()
	err := l.Decide(ctx, &a.table, &a.decision)
	w, d := &a.asked, &a.decision
	w.deciding += time.Since(began)
	w.fuel += d.Fuel
	// Nothing but a trip lets the fallback decide without a fault and without a
	// policy that abstained.
	w.tripped = d.By == policy.ByFallback && d.Fault == nil && d.Abstained == 0
	return err
}
