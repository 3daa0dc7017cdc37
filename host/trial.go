package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/plugins/abi"
)

// TrialResult is what came of trying a specification.
type TrialResult struct {
	Spec     policy.Spec      // every module pinned
	Digests  []string         // of its modules, each once
	Revision int              // of the kept revision that is the same; 0 for none
	Base     int              // the active revision that it was compared with; 0 for none
	Warnings []policy.Warning // what is allowed and probably not meant
	Report   policy.TrialReport
}

// Trial makes a revision of a specification, as Put does, asks it what it would
// have picked for recorded requests, compares it with the active revision, and
// keeps nothing. The policy need not exist. It decides with instances of its
// own; requests wait for nothing. Errors are those of Put.
func (s *PolicySource) Trial(ctx context.Context, name string, spec policy.Spec, frames []*policy.Recording) (_ TrialResult, err error) {
	own := scoped(ctx, "trial")
	c, err := s.pin(name, spec, "trial")
	if err != nil {
		return TrialResult{}, err
	}
	defer func() { err = errors.Join(err, c.discard()) }()
	facts := &factSource{StageSource: s.stages, facts: map[string]policy.StageFacts{}}
	p, digests, err := policy.Compile(own, c.el.Spec, facts)
	if err != nil {
		return TrialResult{}, err
	}
	candidate := policy.NewRevision(name, 0, c.el.Spec, p, digests)
	defer candidate.Retire()
	out := TrialResult{Spec: c.el.Spec, Digests: digests, Warnings: policy.Lint(c.el.Spec, facts.about)}
	if same, ok := s.same(c); ok {
		out.Revision = same.Number
	}
	base, err := s.baseOf(own, name)
	if err != nil {
		return TrialResult{}, err
	}
	if base != nil {
		defer base.Retire()
		out.Base = base.Number()
	}
	out.Report = policy.Trial(ctx, base, candidate, frames)
	if ctx.Err() != nil {
		return TrialResult{}, fmt.Errorf("try policy %q: %w", name, context.Cause(ctx))
	}
	return out, nil
}

// baseOf makes the active revision once more; nil when there is none.
func (s *PolicySource) baseOf(ctx context.Context, name string) (*policy.Revision, error) {
	s.mu.Lock()
	n := s.policies[name]
	var el historyElement
	if n != nil && n.history.Active != 0 {
		el = *n.history.find(n.history.Active)
	}
	s.mu.Unlock()
	if el.Number == 0 {
		return nil, nil
	}
	rev, err := s.build(ctx, name, &el)
	if err != nil && ctx.Err() == nil { // its fallback stands in for it
		return s.standIn(ctx, name, &el)
	}
	return rev, err
}

// factSource takes note of what the manifests of its stages say.
type factSource struct {
	policy.StageSource
	mu    sync.Mutex // guards facts
	facts map[string]policy.StageFacts
}

// Stage makes a stage.
func (f *factSource) Stage(ctx context.Context, kind abi.Kind, use string, config json.RawMessage) (policy.Stage, string, error) {
	st, digest, err := f.StageSource.Stage(ctx, kind, use, config)
	if known, ok := st.(interface{ facts() policy.StageFacts }); ok && err == nil {
		f.mu.Lock()
		f.facts[use] = known.facts()
		f.mu.Unlock()
	}
	return st, digest, err
}

func (f *factSource) about(use string) (policy.StageFacts, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	facts, ok := f.facts[use]
	return facts, ok
}

// facts are what the stage's manifest says.
func (s *stage) facts() policy.StageFacts {
	m := s.pool.module.manifest
	out := policy.StageFacts{ScoreRange: m.ScoreRange, Stateful: m.State != abi.StateNone}
	for _, c := range m.Columns {
		out.Columns = append(out.Columns, c.Name)
	}
	return out
}
