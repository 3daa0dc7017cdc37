package policy

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/routerd/routerd/plugins/abi"
)

// Verdict is what a stage made of its call.
type Verdict uint8

// Verdicts.
const (
	// Answered: the stage's result is there, whole.
	Answered Verdict = iota
	// Abstained: the stage has no opinion. A scorer's term is dropped and the
	// other weights stay; a filter leaves the mask; after a picker the best total
	// is picked; after a whole policy the fallback decides.
	Abstained
)

// StageReport is what a stage tells about one call beside its result.
type StageReport struct {
	Fuel    uint64 // fuel used; 0 for built-in stages
	Cleaned int    // rows whose score was no opinion and became the median
	// Finite says that the stage has cleaned its scores as CleanKept does and that
	// those of masked rows are 0.
	Finite bool
	// Effects is what the call wants done outside; nil for nothing.
	Effects Effects
	// Traces are values that the stage put down for the decision's record, at
	// most abi.MaxTracesPerDecision.
	Traces []Trace
}

// Trace is one value that a stage put down for the decision's record.
type Trace struct {
	Name  string
	Value float64
}

// Effects is what a stage wants done outside the decision: log lines, metrics.
// Whoever commits the decision calls Publish, once; effects of a decision that
// is made again are dropped by forgetting them.
type Effects interface{ Publish() }

// Stage is what all stages have in common. Implementations are safe for
// concurrent use.
type Stage interface {
	// Columns is the set that the table must hold. It is fixed at construction.
	Columns() ColumnSet
	// CheckOverrides tells whether one request may set configuration values, by
	// name, all of them together. known are the names that the stage declares, in
	// no order; it looks at no others. An error, a *fleet.FieldError, names what is
	// refused and says what is allowed.
	CheckOverrides(overrides map[string]json.RawMessage) (known []string, err error)
	// Close releases what the stage holds; called once, after its last call.
	Close() error
}

// Filter decides which candidates the later stages may look at.
type Filter interface {
	Stage
	// Filter writes 0 to keep[i] for each row that it drops. keep has t.Len()
	// bytes and holds the verdict of the filters before: what it says about a row
	// that is 0 already is ignored. An error is a *Fault for what the policy did
	// wrong; keep is then not read.
	Filter(ctx context.Context, t *Table, keep []byte, r *StageReport) (Verdict, error)
}

// Scorer gives every kept candidate a score, higher is better.
type Scorer interface {
	Stage
	// Score writes one score for each row that t.Kept into scores, whose length
	// is t.Len() and at least 1; scores of other rows are never read. An error is
	// a *Fault for what the policy did wrong; the scores are then not read.
	Score(ctx context.Context, t *Table, scores []float64, r *StageReport) (Verdict, error)
}

// Choice is a picker's answer.
type Choice struct {
	Row int
	// Tie tells how the choice was made among equals; Rows is 1 where nothing was
	// drawn.
	Tie Tie
	// HostDraws asks for the best total instead of Row, ties drawn by the host.
	HostDraws bool
}

// Picker chooses one kept candidate.
type Picker interface {
	Stage
	// Pick chooses a row that t.Kept by the weighted sums in totals, which the
	// table holds as upstream.score too where the picker asks for it. Randomness
	// comes from t.Seed alone.
	Pick(ctx context.Context, t *Table, totals []float64, r *StageReport) (Choice, Verdict, error)
}

// Whole is a policy that scores, filters and picks in one call, in the place of
// a pipeline.
type Whole interface {
	Stage
	// Decide writes scores and keep as Scorer and Filter do, and picks.
	Decide(ctx context.Context, t *Table, scores []float64, keep []byte, r *StageReport) (Choice, Verdict, error)
}

// StageSource makes the stages of a pipeline that are not built in.
type StageSource interface {
	// Stage makes the stage of a kind that use names ("module:NAME",
	// "module:NAME@sha256:HEX" or "preset:NAME") with its configuration: checked,
	// compiled and self-tested. It implements Filter, Scorer (also for
	// abi.KindLoraScorer), Picker or Whole as kind says. digest ("sha256:HEX") is
	// what it is pinned to.
	Stage(ctx context.Context, kind abi.Kind, use string, config json.RawMessage) (s Stage, digest string, err error)
}

// Fault is something that a policy did wrong in one call: a trap, exhausted
// fuel, a result that cannot be believed. The request is answered by the
// fallback.
type Fault struct {
	Stage  string // the stage's "use"
	Code   string // ABI code, such as E_TRAP
	Reason string // bounded label: fuel, deadline, trap, nan, range, unwritten, pool_wait, capacity, …
	Detail string // for people, at most 512 bytes
	// Counts tells whether the guard counts the fault; capacity and pool_wait
	// are not the policy's doing.
	Counts bool
	// Fuel is what the call had used.
	Fuel uint64
}

// Error names stage, code and reason.
func (f *Fault) Error() string {
	return fmt.Sprintf("policy stage %q: %s (%s): %s", f.Stage, f.Code, f.Reason, f.Detail)
}
