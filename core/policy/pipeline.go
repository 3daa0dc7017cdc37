package policy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/plugins/abi"
)

// Pipeline is a compiled specification: scorers with their weights, the picker
// and the fallback. It is immutable and safe for concurrent use.
type Pipeline struct {
	stages   []scorerStage
	fallback Scorer
	columns  ColumnSet
}

type scorerStage struct {
	use       string
	scorer    Scorer
	weight    float64
	normalise string
	onError   string
}

// Compile makes the stages of a specification. Stages that are not built in
// come from src; with a nil src they are refused. The digests are those of the
// modules, in pipeline order, each once. On an error everything that was made
// is closed again and the error names the stage.
func Compile(ctx context.Context, spec Spec, src StageSource) (*Pipeline, []string, error) {
	spec, err := spec.Normalised()
	if err != nil {
		return nil, nil, err
	}
	p := &Pipeline{}
	var digests []string
	for i, sc := range spec.Scorers {
		scorer, digest, err := compileScorer(ctx, sc.StageSpec, src)
		if err != nil {
			return nil, nil, errors.Join(fmt.Errorf("compile scorers[%d]: %w", i, err), p.close())
		}
		p.stages = append(p.stages, scorerStage{sc.Use, scorer, *sc.Weight, sc.Normalise, sc.OnError})
		p.columns.Union(scorer.Columns())
		if digest != "" && !slices.Contains(digests, digest) {
			digests = append(digests, digest)
		}
	}
	if p.fallback, err = Builtin(spec.Fallback, nil); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("compile fallback: %w", err), p.close())
	}
	p.columns.Union(p.fallback.Columns())
	return p, digests, nil
}

func compileScorer(ctx context.Context, s StageSpec, src StageSource) (Scorer, string, error) {
	if strings.HasPrefix(s.Use, BuiltinPrefix) {
		scorer, err := Builtin(s.Use, s.Config)
		return scorer, "", err
	}
	if src == nil {
		return nil, "", &fleet.FieldError{Field: "use", Value: s.Use, Allowed: strings.Join(Builtins(), ", ")}
	}
	stage, digest, err := src.Stage(ctx, abi.KindScorer, s.Use, s.Config)
	if err != nil {
		return nil, "", err
	}
	scorer, ok := stage.(Scorer)
	if !ok {
		return nil, "", errors.Join(fmt.Errorf("stage %q is no scorer", s.Use), stage.Close())
	}
	return scorer, digest, nil
}

// Columns is what a table must hold for this pipeline and its fallback.
func (p *Pipeline) Columns() ColumnSet { return p.columns }

// Stages names the scorers ("use") in pipeline order.
func (p *Pipeline) Stages() []string {
	names := make([]string, len(p.stages))
	for i := range p.stages {
		names[i] = p.stages[i].use
	}
	return names
}

// run fills d from the pipeline alone. A *Fault asks for the fallback; any
// other error ends the decision.
func (p *Pipeline) run(ctx context.Context, t *Table, d *Decision) error {
	d.reset(t.Len(), len(p.stages))
	for i := range p.stages {
		if err := p.score(ctx, i, t, d); err != nil {
			return err
		}
	}
	d.Row, d.Tie = best(d.Totals, t.Seed)
	return nil
}

// score adds the term of one scorer to the totals.
func (p *Pipeline) score(ctx context.Context, i int, t *Table, d *Decision) error {
	st := &p.stages[i]
	scores, verdict, err := p.call(ctx, i, t, d)
	if err != nil {
		fault, ok := errors.AsType[*Fault](err)
		if !ok {
			return err
		}
		if d.Fault == nil {
			d.Fault = fault
		}
		if st.onError == "skip" {
			return nil
		}
		return &stageFailure{fault, st.onError}
	}
	if verdict == Abstained {
		d.Abstained++
		return nil
	}
	d.StageScores[i] = scores
	d.order = normalise(st.normalise, scores, d.normalised, d.order)
	for row, v := range d.normalised {
		d.Totals[row] = clamp(d.Totals[row] + float64(st.weight*v))
	}
	return nil
}

// call runs one scorer and makes sure that its scores can be believed.
func (p *Pipeline) call(ctx context.Context, i int, t *Table, d *Decision) ([]float64, Verdict, error) {
	st := &p.stages[i]
	if err := ctx.Err(); err != nil {
		return nil, 0, outOfTime(ctx, st.use)
	}
	r := &d.report
	*r = StageReport{}
	scores := d.buffer(i, t.Len())
	verdict, err := st.scorer.Score(ctx, t, scores, r)
	d.note(st.use, r)
	if err != nil {
		return nil, 0, stageError(ctx, st.use, err)
	}
	if verdict == Abstained {
		return nil, Abstained, nil
	}
	var cleaned int
	var ok bool
	d.spare, cleaned, ok = Clean(scores, d.spare)
	if !ok {
		return nil, 0, &Fault{
			Stage: st.use, Code: string(abi.ENaN), Reason: "nan", Counts: true, Fuel: r.Fuel,
			Detail: fmt.Sprintf("%d of %d candidates have no finite score", cleaned, len(scores)),
		}
	}
	d.Cleaned += cleaned
	return scores, Answered, nil
}

// stageError tells a fault from an ended request.
func stageError(ctx context.Context, use string, err error) error {
	if _, ok := errors.AsType[*Fault](err); ok {
		return err
	}
	if ctx.Err() != nil {
		return outOfTime(ctx, use)
	}
	return &Fault{Stage: use, Code: string(abi.ETrap), Reason: "error", Detail: cut(err.Error(), 512), Counts: true}
}

// outOfTime is a fault when only the decision's time is over, else the reason
// why the request has ended.
func outOfTime(ctx context.Context, use string) error {
	cause := context.Cause(ctx)
	if errors.Is(cause, ErrOutOfTime) {
		return &Fault{Stage: use, Code: string(abi.EPool), Reason: "turn", Detail: cause.Error()}
	}
	return cause
}

// stageFailure is a fault together with what the stage's on_error asks for.
type stageFailure struct {
	fault   *Fault
	onError string
}

func (e *stageFailure) Error() string { return e.fault.Error() }
func (e *stageFailure) Unwrap() error { return e.fault }

// decideByFallback fills d from the fallback alone, keeping fault, fuel and
// counts of what ran before.
func (p *Pipeline) decideByFallback(ctx context.Context, t *Table, d *Decision) {
	d.By = ByFallback
	clear(d.StageScores)
	// A built-in scorer neither fails nor looks at ctx.
	_, _ = p.fallback.Score(context.WithoutCancel(ctx), t, d.Totals, &d.report)
	for i, v := range d.Totals {
		if v != v {
			v = -MaxScore
		}
		d.Totals[i] = clamp(v + 0)
	}
	d.Row, d.Tie = best(d.Totals, t.Seed)
}

// checkOverrides refuses an override that no scorer of the pipeline declares or
// whose value is not allowed.
func (p *Pipeline) checkOverrides(overrides map[string]json.RawMessage) error {
	for name, value := range overrides {
		reached := false
		for i := range p.stages {
			known, err := p.stages[i].scorer.CheckOverride(name, value)
			if err != nil {
				return err
			}
			reached = reached || known
		}
		if !reached {
			return &fleet.FieldError{Field: name, Value: string(value), Allowed: "a name that the active policy's configuration declares"}
		}
	}
	return nil
}

func (p *Pipeline) close() error {
	var errs []error
	for i := range p.stages {
		if err := p.stages[i].scorer.Close(); err != nil {
			errs = append(errs, fmt.Errorf("close stage %q: %w", p.stages[i].use, err))
		}
	}
	return errors.Join(errs...)
}

func cut(s string, n int) string {
	if len(s) > n {
		return s[:n]
	}
	return s
}
