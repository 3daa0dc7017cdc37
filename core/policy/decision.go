package policy

import (
	"errors"
	"slices"

	"github.com/routerd/routerd/plugins/abi"
)

// ErrOutOfTime is the cause that ends a decision's context when its time is
// over: the decision is then made by the fallback instead of failing.
var ErrOutOfTime = errors.New("decision is out of time")

// By tells who chose.
type By string

// Who chose a worker.
const (
	ByPolicy   By = "policy"
	ByFallback By = "fallback"
	ByPin      By = "pin"
	BySession  By = "session"
)

// Tie tells among how many rows a number in [0, 1) chose: those that shared the
// highest total, or those that a picker drew among. Where there was one nothing
// was drawn.
type Tie struct {
	Rows int
	Draw float64
}

// Decision is what a revision made of a table. It is owned by one decision at a
// time and reused: Decide overwrites it, its slices keep their memory.
type Decision struct {
	Row int
	By  By
	// Totals has the weighted sum of each row, of the fallback where it chose.
	Totals []float64
	// StageScores has the scores of each scorer of the pipeline, in its order, lora
	// scorers after the others; nil for one that abstained, faulted or was not
	// called. Of a whole policy it has one element. As in Totals, a row that was
	// masked has 0.
	StageScores [][]float64
	Tie         Tie
	// Mask has a byte a row: 0, or 1 for a row that could be picked; nil when
	// every row could. MaskedBy has for each masked row the index of the filter
	// that dropped it (-1: the whole policy); read only where Mask is 0.
	Mask     []byte
	MaskedBy []int16
	// Traces are what the stages put down for the record.
	Traces []StageTrace
	// Fault is the first fault; nil when there was none.
	Fault *Fault
	// Tripped tells that this very call made the guard trip the revision.
	Tripped bool
	// Fuel is the sum over the stages.
	Fuel uint64
	// Cleaned counts scores that were no opinion and became the median.
	Cleaned int
	// Abstained counts stages that had no opinion on the whole request.
	Abstained int
	// Emptied counts filters whose verdict was left out because it dropped every
	// candidate.
	Emptied int

	report     StageReport
	effects    []Effects
	keep, drop []byte
	buffers    [][]float64
	normalised []float64
	spare      []float64
	order      []int32
}

// StageTrace is a value that a stage put down for the record.
type StageTrace struct {
	Stage string // its "use"
	Trace
}

// Publish does what the stages of the decision want done outside. Whoever
// commits the decision calls it, once.
func (d *Decision) Publish() {
	for i, e := range d.effects {
		e.Publish()
		d.effects[i] = nil
	}
	d.effects = d.effects[:0]
}

// note takes over what a stage told about its call.
func (d *Decision) note(use string, r *StageReport) {
	d.Fuel += r.Fuel
	d.Cleaned += r.Cleaned
	if r.Effects != nil {
		d.effects = append(d.effects, r.Effects)
	}
	for _, tr := range r.Traces {
		if len(d.Traces) < abi.MaxTracesPerDecision {
			d.Traces = append(d.Traces, StageTrace{use, tr})
		}
	}
}

// reset empties d for a decision from t, whose rows are all kept, by so many
// stages that score.
func (d *Decision) reset(t *Table, stages int) {
	rows := t.Len()
	d.unmask(t)
	if c := t.Cells(abi.ColUpstreamScore); c != nil {
		c.reset(rows, c.unless) // there are no totals yet
	}
	d.Row, d.By, d.Tie, d.Fault = 0, ByPolicy, Tie{}, nil
	d.Fuel, d.Cleaned, d.Abstained, d.Emptied, d.Tripped = 0, 0, 0, 0, false
	d.Traces = d.Traces[:0]
	clear(d.effects)
	d.effects = d.effects[:0]
	d.Totals = slices.Grow(d.Totals[:0], rows)[:rows]
	clear(d.Totals)
	d.normalised = slices.Grow(d.normalised[:0], rows)[:rows]
	for len(d.buffers) < stages {
		d.buffers = append(d.buffers, nil)
	}
	d.StageScores = slices.Grow(d.StageScores[:0], stages)[:stages]
	clear(d.StageScores)
}

// buffer is the stage's score space for a number of rows.
func (d *Decision) buffer(stage, rows int) []float64 {
	d.buffers[stage] = slices.Grow(d.buffers[stage][:0], rows)[:rows]
	return d.buffers[stage]
}
