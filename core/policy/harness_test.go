package policy_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/plugins/abi"
)

func use(stages ...string) policy.Spec {
	var s policy.Spec
	for _, u := range stages {
		s.Scorers = append(s.Scorers, policy.ScorerSpec{StageSpec: policy.StageSpec{Use: u}})
	}
	return s
}

func revision(t testing.TB, spec policy.Spec, src policy.StageSource, opts ...policy.RevisionOption) *policy.Revision {
	t.Helper()
	p, digests, err := policy.Compile(t.Context(), spec, src)
	if err != nil {
		t.Fatal(err)
	}
	return policy.NewRevision("p", 1, spec, p, digests, opts...)
}

// scripted is a scorer that a test tells what to answer.
type scripted struct {
	columns policy.ColumnSet
	answer  func(t *policy.Table, scores []float64) (policy.Verdict, error)
	fuel    uint64
	knows   string // the one override it declares
	closed  int
	err     error // of Close
}

func (s *scripted) Columns() policy.ColumnSet { return s.columns }

func (s *scripted) Score(_ context.Context, t *policy.Table, scores []float64, r *policy.StageReport) (policy.Verdict, error) {
	r.Fuel = s.fuel
	return s.answer(t, scores)
}

func (s *scripted) CheckOverride(name string, _ json.RawMessage) (bool, error) {
	return name == s.knows, nil
}

func (s *scripted) Close() error {
	s.closed++
	return s.err
}

func scores(values ...float64) *scripted {
	return &scripted{answer: func(_ *policy.Table, out []float64) (policy.Verdict, error) {
		copy(out, values)
		return policy.Answered, nil
	}}
}

func faulty(f policy.Fault) *scripted {
	return &scripted{answer: func(*policy.Table, []float64) (policy.Verdict, error) { return 0, &f }}
}

// modules is a stage source by name.
type modules map[string]*scripted

func (m modules) Stage(_ context.Context, _ abi.Kind, name string, _ json.RawMessage) (policy.Stage, string, error) {
	s, ok := m[name]
	if !ok {
		return nil, "", &notFound{name}
	}
	return s, "sha256:" + name, nil
}

type notFound struct{ name string }

func (e *notFound) Error() string { return "no module " + e.name }

func table(n int, set policy.ColumnSet) *policy.Table {
	t := &policy.Table{}
	t.Reset(n, set)
	return t
}
