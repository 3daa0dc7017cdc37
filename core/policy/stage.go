package policy

import (
	"context"
	"encoding/json"
	"fmt"
)

// Verdict is what a stage made of its call.
type Verdict uint8

// Verdicts.
const (
	// Scored: every row has the stage's score.
	Scored Verdict = iota
	// Abstained: the stage's term is dropped, the other weights unchanged.
	Abstained
)

// StageReport is what a scorer tells about one call beside its scores.
type StageReport struct {
	Fuel    uint64 // fuel used; 0 for built-in stages
	Cleaned int    // rows whose score was no opinion and became the median
}

// Scorer gives every candidate a score, higher is better. Implementations are
// safe for concurrent use.
type Scorer interface {
	// Columns is the set that the table must hold. It is fixed at construction.
	Columns() ColumnSet
	// Score writes one finite score a row into scores, whose length is t.Len()
	// and at least 1. An error is a *Fault for what the policy did wrong; the
	// scores are then not read.
	Score(ctx context.Context, t *Table, scores []float64, r *StageReport) (Verdict, error)
	// CheckOverride tells whether the configuration value called name exists and
	// may be set to value for one request: known is false for a name that the
	// stage does not declare, err says what is allowed.
	CheckOverride(name string, value json.RawMessage) (known bool, err error)
	// Close releases what the stage holds; called once, after its last call.
	Close() error
}

// StageSource makes the scorers of a pipeline that are not built in.
type StageSource interface {
	// Scorer makes the scorer named by use ("module:NAME" or
	// "module:NAME@sha256:HEX") with its configuration, checked, compiled and
	// self-tested, and returns the digest ("sha256:HEX") it is pinned to.
	Scorer(ctx context.Context, use string, config json.RawMessage) (s Scorer, digest string, err error)
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
