package policy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/plugins/abi"
)

// ErrEmptied is wrapped by the error of a decision that a filter whose on_empty
// is fail has left without a candidate.
var ErrEmptied = errors.New("every candidate was dropped by a filter of the policy")

// errNoOpinion asks for the fallback without a fault: the whole policy abstained.
var errNoOpinion = errors.New("policy abstained")

// Pipeline is a compiled specification: filters, scorers with their weights,
// lora scorers and the picker, or one whole policy; and the fallback. It is
// immutable and safe for concurrent use.
type Pipeline struct {
	stages  []namedStage // all but the fallback, in order
	filters []filterStage
	scorers []scorerStage // the lora scorers last
	picker  pickerStage
	whole   *wholeStage // nil for a pipeline

	fallback Scorer
	columns  ColumnSet
}

// StageName is what is known of a stage outside: its kind and its "use".
type StageName struct {
	Kind abi.Kind `json:"kind"`
	Use  string   `json:"use"`
}

type namedStage struct {
	name  StageName
	stage Stage
}

// Columns is what a table must hold for this pipeline and its fallback.
func (p *Pipeline) Columns() ColumnSet { return p.columns }

// Stages names the stages in the order in which they run: filters, scorers, lora
// scorers and the picker, or the whole policy. Decision.MaskedBy counts from its
// start; Decision.StageScores has an element for each that scores, in order.
func (p *Pipeline) Stages() []StageName {
	names := make([]StageName, len(p.stages))
	for i := range p.stages {
		names[i] = p.stages[i].name
	}
	return names
}

// scoring is the number of stages that give scores.
func (p *Pipeline) scoring() int {
	if p.whole != nil {
		return 1
	}
	return len(p.scorers)
}

// run fills d from the pipeline alone. A *stageFailure tells what a stage's
// fault asks for, errNoOpinion asks for the fallback; any other error ends the
// decision.
func (p *Pipeline) run(ctx context.Context, t *Table, d *Decision) error {
	return p.runWithout(ctx, t, d, -1)
}

// runWithout is run as if the scorer of that number were not there; -1 leaves
// none out.
func (p *Pipeline) runWithout(ctx context.Context, t *Table, d *Decision, without int) error {
	d.reset(t, p.scoring())
	if p.whole != nil {
		return p.decideWhole(ctx, t, d)
	}
	for i := range p.filters {
		if err := p.filter(ctx, i, t, d); err != nil {
			return err
		}
	}
	lora := t.Field(abi.FieldHasLora) != 0
	for i := range p.scorers {
		if i == without || p.scorers[i].lora && !lora {
			continue
		}
		if err := p.score(ctx, i, t, d); err != nil {
			return err
		}
	}
	return p.pick(ctx, t, d)
}

// begin makes the report for a stage's call; an error says that there is no time
// for it.
func (d *Decision) begin(ctx context.Context, use string) (*StageReport, error) {
	if err := ctx.Err(); err != nil {
		return nil, outOfTime(ctx, use)
	}
	d.report = StageReport{}
	return &d.report, nil
}

// failed takes note of a stage's fault. skip is true where the decision goes on
// without the stage; err is what it ends with otherwise.
func (d *Decision) failed(ctx context.Context, use, onError string, err error) (skip bool, _ error) {
	fault, ok := errors.AsType[*Fault](err)
	if !ok && ctx.Err() != nil {
		err = outOfTime(ctx, use)
		if fault, ok = errors.AsType[*Fault](err); !ok {
			return false, err
		}
	}
	if !ok {
		fault = &Fault{Stage: use, Code: string(abi.ETrap), Reason: "error", Detail: cut(err.Error(), 512), Counts: true}
	}
	if d.Fault == nil {
		d.Fault = fault
	}
	if onError == onErrorSkip {
		return true, nil
	}
	return false, &stageFailure{fault, onError}
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
// counts of what ran before. It decides among the rows that the filters which ran
// have kept: a filter never readmits. What a whole policy dropped goes with the
// rest of its answer; where no filter ran every row of the table is scored.
func (p *Pipeline) decideByFallback(ctx context.Context, t *Table, d *Decision) {
	d.By = ByFallback
	if p.whole != nil {
		d.unmask(t)
	}
	clear(d.StageScores)
	d.report = StageReport{}
	// A built-in scorer neither fails nor looks at ctx.
	_, _ = p.fallback.Score(context.WithoutCancel(ctx), t, d.Totals, &d.report)
	for i, v := range d.Totals {
		switch {
		case !t.Kept(i):
			v = 0
		case v != v:
			v = -MaxScore
		}
		d.Totals[i] = clamp(v + 0)
	}
	d.Row, d.Tie = bestKept(d.Totals, t.mask, t.Seed)
}

// checkOverrides refuses an override that no stage of the pipeline declares or
// values that are not allowed together.
func (p *Pipeline) checkOverrides(overrides map[string]json.RawMessage) error {
	unknown := maps.Clone(overrides)
	for i := range p.stages {
		known, err := p.stages[i].stage.CheckOverrides(overrides)
		if err != nil {
			return err
		}
		for _, name := range known {
			delete(unknown, name)
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	name := slices.Sorted(maps.Keys(unknown))[0]
	return &fleet.FieldError{Field: name, Value: string(overrides[name]), Allowed: "a name that the active policy's configuration declares"}
}

func (p *Pipeline) close() error {
	var errs []error
	for i := range p.stages {
		if err := p.stages[i].stage.Close(); err != nil {
			errs = append(errs, fmt.Errorf("close stage %q: %w", p.stages[i].name.Use, err))
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
