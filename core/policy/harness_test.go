package policy_test

import (
	"context"
	"encoding/json"
	"sync/atomic"
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
	finite  bool
	knows   string // the one override it declares
	closed  int
	err     error // of Close
}

func (s *scripted) Columns() policy.ColumnSet { return s.columns }

func (s *scripted) Score(_ context.Context, t *policy.Table, scores []float64, r *policy.StageReport) (policy.Verdict, error) {
	r.Fuel, r.Finite = s.fuel, s.finite
	return s.answer(t, scores)
}

func (s *scripted) CheckOverrides(overrides map[string]json.RawMessage) ([]string, error) {
	if _, ok := overrides[s.knows]; !ok {
		return nil, nil
	}
	return []string{s.knows}, nil
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
type modules map[string]policy.Stage

func (m modules) Stage(_ context.Context, _ abi.Kind, name string, _ json.RawMessage) (policy.Stage, string, error) {
	s, ok := m[name]
	if !ok {
		return nil, "", &notFound{name}
	}
	return s, "sha256:" + name, nil
}

type notFound struct{ name string }

func (e *notFound) Error() string { return "no module " + e.name }

// other is the part that scripted stages of other kinds share.
type other struct {
	columns policy.ColumnSet
	closed  int
}

func (o *other) Columns() policy.ColumnSet                                   { return o.columns }
func (o *other) CheckOverrides(map[string]json.RawMessage) ([]string, error) { return nil, nil }
func (o *other) Close() error                                                { o.closed++; return nil }

// filtering is a filter that a test tells what to answer.
type filtering struct {
	other
	answer func(t *policy.Table, keep []byte) (policy.Verdict, error)
}

func (f *filtering) Filter(_ context.Context, t *policy.Table, keep []byte, _ *policy.StageReport) (policy.Verdict, error) {
	return f.answer(t, keep)
}

// keeps is a filter whose verdict is the bytes of a text: '0', '1' or another.
func keeps(verdict string) *filtering {
	return &filtering{answer: func(_ *policy.Table, keep []byte) (policy.Verdict, error) {
		for row := range keep {
			keep[row] = verdict[row] - '0'
		}
		return policy.Answered, nil
	}}
}

// picking is a picker that a test tells what to answer.
type picking struct {
	other
	answer func(t *policy.Table, totals []float64) (policy.Choice, policy.Verdict, error)
}

func (p *picking) Pick(_ context.Context, t *policy.Table, totals []float64, _ *policy.StageReport) (policy.Choice, policy.Verdict, error) {
	return p.answer(t, totals)
}

func picks(c policy.Choice) *picking {
	return &picking{answer: func(*policy.Table, []float64) (policy.Choice, policy.Verdict, error) { return c, policy.Answered, nil }}
}

// deciding is a whole policy that a test tells what to answer.
type deciding struct {
	other
	answer func(t *policy.Table, scores []float64, keep []byte) (policy.Choice, policy.Verdict, error)
}

func (w *deciding) Decide(_ context.Context, t *policy.Table, scores []float64, keep []byte, _ *policy.StageReport) (policy.Choice, policy.Verdict, error) {
	return w.answer(t, scores, keep)
}

// filtered is a specification of filters and scorers; changed by f.
func filtered(filters, scorers []string, f func(s *policy.Spec)) policy.Spec {
	s := use(scorers...)
	for _, u := range filters {
		s.Filters = append(s.Filters, policy.FilterSpec{StageSpec: policy.StageSpec{Use: u}})
	}
	if f != nil {
		f(&s)
	}
	return s
}

// wholeOf is a specification of one whole policy.
func wholeOf(use, config string) policy.Spec {
	return policy.Spec{Policy: &policy.WholeSpec{StageSpec: policy.StageSpec{Use: use, Config: json.RawMessage(config)}}}
}

func picker(use string) *policy.PickerSpec {
	return &policy.PickerSpec{StageSpec: policy.StageSpec{Use: use}}
}

func table(n int, set policy.ColumnSet) *policy.Table {
	t := &policy.Table{}
	t.Reset(n, set)
	return t
}

// guardOff makes a revision that never trips.
func guardOff() policy.RevisionOption {
	var off atomic.Bool
	off.Store(true)
	return policy.GuardSwitch(&off)
}
