package admin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/valyala/fasthttp"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/host/store"
	"github.com/routerd/routerd/internal/httpapi"
	"github.com/routerd/routerd/plugins/abi"
)

// triedDecisions is on how many recorded decisions a dry run tries unless told.
const triedDecisions = 256

// revisionAnswer is a revision that was put, or tried.
type revisionAnswer struct {
	Name     string           `json:"name"`
	Revision int              `json:"revision"` // of a dry run: the kept one that is the same, 0 for none
	State    policy.State     `json:"state,omitempty"`
	Digests  []string         `json:"digests"`
	Warnings []policy.Warning `json:"warnings"`
	DryRun   bool             `json:"dry_run,omitempty"`
	Columns  []string         `json:"columns,omitempty"` // that it reads; of a dry run
	Trial    *trialView       `json:"trial,omitempty"`
}

// trialView is a trial on recorded decisions, its frames named by their
// decisions.
type trialView struct {
	Base int `json:"base"` // the active revision that it was compared with, 0 for none
	policy.TrialReport
	Disagreed int           `json:"disagreed"`
	Changed   []trialChange `json:"changed"` // the first of them
}

type trialChange struct {
	Decision  string          `json:"decision"`
	Base      policy.TrialRow `json:"base"`
	Candidate policy.TrialRow `json:"candidate"`
}

func (s *Server) putPolicy(ctx context.Context, x *exchange) error {
	dry, err := x.flag("dry_run")
	if err != nil {
		return err
	}
	tried, err := x.number("decisions", triedDecisions, 0, mostDecisions)
	if err != nil {
		return err
	}
	if x.query.Has("decisions") && !dry {
		return httpapi.Invalid("query parameter decisions", "goes with dry_run", "")
	}
	if x.query.Has("reason") && dry {
		return httpapi.Invalid("query parameter reason", "does not go with dry_run, which keeps nothing", "")
	}
	why, err := x.because()
	if err != nil {
		return err
	}
	body := bytes.Clone(x.rc.Request.Body()) // the specification keeps parts of it
	if err := httpapi.CheckObject(body, nil); err != nil {
		return err
	}
	spec, err := policy.ParseSpec(body)
	if err != nil {
		return err
	}
	if dry {
		return s.tryPolicy(ctx, x, spec, tried)
	}
	info, created, err := s.parts.Policies.Put(ctx, x.name, spec, byAPI, why)
	if err != nil {
		return ofBody(err)
	}
	x.digest = strings.Join(info.Digests, ",")
	return x.reply(putStatus(created), revisionAnswer{
		Name: info.Name, Revision: info.Number, State: info.State, Digests: append([]string{}, info.Digests...), Warnings: s.lint(info.Spec),
	})
}

// ofBody says of a module that is not stored that it is of the request's body,
// not of its path.
func ofBody(err error) error {
	if errors.Is(err, store.ErrNotFound) {
		return httpapi.Invalid("scorers", err.Error(), "a module that is stored")
	}
	return err
}

// number reads a query parameter that is a whole number; unless is where it is not
// given.
func (x *exchange) number(name string, unless, least, most int) (int, error) {
	if !x.query.Has(name) {
		return unless, nil
	}
	v := x.query.Get(name)
	n, err := strconv.Atoi(v)
	if err != nil || n < least || n > most {
		return 0, httpapi.Invalid("query parameter "+name, fmt.Sprintf("%q is not allowed", httpapi.Clip(v)), fmt.Sprintf("%d to %d", least, most))
	}
	return n, nil
}

// tryPolicy answers what a specification would come to, and keeps nothing.
func (s *Server) tryPolicy(ctx context.Context, x *exchange, spec policy.Spec, decisions int) error {
	ids, frames := s.recorded(x.name, decisions)
	got, err := s.parts.Policies.Trial(ctx, x.name, spec, frames)
	if err != nil {
		return ofBody(err)
	}
	x.digest = strings.Join(got.Digests, ",")
	columns, err := s.columnsOf(ctx, got.Spec)
	if err != nil {
		return err
	}
	r := got.Report
	trial := &trialView{Base: got.Base, TrialReport: r, Disagreed: r.Compared - r.Agreed, Changed: []trialChange{}}
	for _, c := range r.Changed {
		trial.Changed = append(trial.Changed, trialChange{ids[c.Frame], c.Base, c.Candidate})
	}
	return x.reply(fasthttp.StatusOK, revisionAnswer{
		Name: x.name, Revision: got.Revision, Digests: append([]string{}, got.Digests...), Warnings: append([]policy.Warning{}, got.Warnings...),
		DryRun: true, Columns: columns, Trial: trial,
	})
}

// recorded returns the last decisions that a policy was asked for, the newest
// first; those of all policies where it decides nothing yet.
func (s *Server) recorded(name string, most int) (ids []string, frames []*policy.Recording) {
	f := core.DecisionFilter{Policy: name}
	if p, err := s.parts.Policies.Show(name); err != nil || p.Active == 0 {
		f.Policy = ""
	}
	for _, d := range s.parts.Decisions.List(f) {
		if len(ids) == most {
			break
		}
		if d.Pick.By == policy.ByPin || d.Pick.By == policy.BySession {
			continue // no policy was asked
		}
		// One that is gone meanwhile is left out.
		if r, ok := s.parts.Decisions.Recording(d.ID); ok && r.Record.ID == d.ID {
			ids, frames = append(ids, d.ID), append(frames, r.Frame)
		}
	}
	return ids, frames
}

// lint warns of what is allowed in a pinned specification and probably not
// meant.
func (s *Server) lint(pinned policy.Spec) []policy.Warning {
	return append([]policy.Warning{}, policy.Lint(pinned, func(use string) (policy.StageFacts, bool) {
		m, err := s.manifestOf(use)
		if err != nil {
			return policy.StageFacts{}, false
		}
		facts := policy.StageFacts{ScoreRange: m.ScoreRange, Stateful: m.State != abi.StateNone}
		for _, c := range m.Columns {
			facts.Columns = append(facts.Columns, c.Name)
		}
		return facts, true
	})...)
}

// manifestOf reads the manifest of a stage that is pinned to a digest.
func (s *Server) manifestOf(use string) (*abi.Manifest, error) {
	_, digest, ok := strings.Cut(use, "@")
	if !ok {
		return nil, &fleet.FieldError{Field: "use", Value: httpapi.Clip(use), Allowed: "a module with its digest"}
	}
	info, err := s.inspect(digest)
	if err != nil {
		return nil, err
	}
	return info.Manifest, nil
}

// columnsOf names the columns that a pinned specification reads, in table order.
func (s *Server) columnsOf(ctx context.Context, pinned policy.Spec) ([]string, error) {
	// Of the built-in stages the router itself knows; as scorer the fallback
	// stands in for modules, since it reads its columns anyway.
	builtin := policy.Spec{Scorers: []policy.ScorerSpec{{StageSpec: policy.StageSpec{Use: pinned.Fallback}}}, Fallback: pinned.Fallback}
	var modules []string
	pinned.EachStage(func(_ string, kind abi.Kind, st *policy.StageSpec) {
		native := policy.ScorerSpec{StageSpec: *st}
		switch {
		case !strings.HasPrefix(st.Use, policy.BuiltinPrefix):
			modules = append(modules, st.Use)
		case kind == abi.KindScorer:
			builtin.Scorers = append(builtin.Scorers, native)
		case kind == abi.KindLoraScorer:
			builtin.Lora = append(builtin.Lora, native)
		case kind == abi.KindPolicy:
			builtin.Policy, builtin.Scorers = pinned.Policy, nil
		}
	})
	normal, err := builtin.Normalised()
	if err != nil {
		return nil, fmt.Errorf("columns of the built-in stages: %w", err)
	}
	p, _, err := policy.Compile(ctx, normal, nil)
	if err != nil {
		return nil, fmt.Errorf("columns of the built-in stages: %w", err)
	}
	set := p.Columns().Clone()
	for _, use := range modules {
		m, err := s.manifestOf(use)
		if err != nil {
			return nil, fmt.Errorf("columns of %s: %w", use, err)
		}
		for _, c := range m.Columns {
			set.Add(c.Name)
		}
	}
	return append([]string{}, set.Names()...), nil
}
