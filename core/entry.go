package core

import (
	"time"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/plugins/abi"
)

// entry is a record in the form in which it is kept: flat slices that are
// reused when it was evicted. From put to its eviction it does not change, and
// while it has readers not even after.
type entry struct {
	id        string
	at        time.Time
	partition fleet.PartitionKey
	kind      Kind
	surface   string
	asked     asked
	request   RecordedRequest
	by        policy.By
	name      string
	pick      fleet.Worker
	tie       policy.Tie
	fault     *policy.Fault
	fuel      uint64
	micros    int64
	waited    int64 // microseconds

	frame    policy.Recording
	mask     []byte  // empty when every row could be picked
	maskedBy []int16 // as in policy.Decision
	gave     []bool  // which scorers gave scores
	scores   []float64
	totals   []float64
	traces   []policy.StageTrace

	cost    int
	readers int // guarded by the log's lock
}

// oversized tells whether the entry's buffers are much larger than so many rows
// need: what is kept of them counts against the log's bound.
func (e *entry) oversized(rows int) bool { return cap(e.totals) > 4*rows+64 }

func (e *entry) fill(a *attempt, elapsed time.Duration) {
	d, sel := &a.decision, a.sel
	e.id, e.at, e.partition = sel.DecisionID, a.started, sel.Partition
	e.kind, e.surface, e.asked = a.req.Kind, a.req.Surface, a.asked
	e.request = RecordedRequest{
		Tokens: a.tokens, Blocks: a.blockCount, Adapter: a.req.Adapter, Class: a.req.Class,
		SessionHash: uint64(a.table.Field(abi.FieldSession)), Seed: a.seed, Flags: a.table.Flags,
	}
	e.by, e.name, e.pick = d.By, sel.Name, sel.Worker
	e.tie, e.fault, e.fuel = d.Tie, d.Fault, d.Fuel
	e.micros, e.waited = (elapsed - a.waiting.waited).Microseconds(), a.waiting.waited.Microseconds()
	e.frame.Take(&a.table)
	e.mask, e.maskedBy = append(e.mask[:0], d.Mask...), append(e.maskedBy[:0], d.MaskedBy...)
	e.gave, e.scores = e.gave[:0], e.scores[:0]
	for _, s := range d.StageScores {
		e.gave = append(e.gave, s != nil)
		e.scores = append(e.scores, s...)
	}
	e.totals = append(e.totals[:0], d.Totals...)
	e.traces = append(e.traces[:0], d.Traces...)
}

// bytes is what the entry holds in memory, its reused buffers at their full
// size.
func (e *entry) bytes() int {
	const fixed, number, trace = 768 + 8*abi.NumFields, 8, 48
	n := fixed + len(e.id) + len(e.name) + len(e.request.Class) + e.frame.Bytes() + number*(cap(e.scores)+cap(e.totals))
	n += cap(e.mask) + 2*cap(e.maskedBy) + cap(e.gave) + trace*cap(e.traces)
	if e.fault != nil {
		n += len(e.fault.Detail)
	}
	return n
}

// record renders the entry without its rows.
func (e *entry) record() DecisionRecord {
	w := &e.asked
	r := DecisionRecord{
		ID: e.id, At: e.at, Partition: PartitionRef{e.partition.Model, e.partition.Group},
		Kind: e.kind.String(), Surface: e.surface,
		Policy: RecordedPolicy{
			Name: w.policy, Revision: w.revision, Digests: append([]string{}, w.digests...),
			Stages: append([]policy.StageName{}, w.stages...), Canary: w.canary,
		},
		Request: e.request,
		Tie:     RecordedTie{e.tie.Rows, e.tie.Draw},
		Pick:    RecordedPick{e.pick.ID, e.name, e.pick.Rank, e.by},
		Fuel:    e.fuel, Micros: e.micros, WaitedMicros: e.waited,
	}
	switch f := e.fault; {
	case f != nil:
		r.Fault = &RecordedFault{f.Stage, f.Code, f.Reason, f.Detail}
	case w.tripped:
		r.Fault = &RecordedFault{Reason: ReasonTripped, Detail: "the revision has tripped: its fallback decides until it gets another chance"}
	}
	for _, tr := range e.traces {
		if finite(tr.Value) {
			r.Traces = append(r.Traces, RecordedTrace{tr.Stage, tr.Name, tr.Value})
		}
	}
	return r
}

func (e *entry) recordedRows() []RecordedRow {
	var t policy.Table
	columns := e.frame.Columns()
	e.frame.Table(&t, columns)
	rows := make([]RecordedRow, t.Len())
	names := columns.Names()
	for i, w := range t.Rows {
		rows[i] = RecordedRow{Worker: w.ID, Rank: w.Rank, Mask: 1, Columns: make(map[string]float64, len(names)), StageScores: make([]*float64, len(e.gave)), Total: e.totals[i]}
		if len(e.mask) > 0 && e.mask[i] == 0 {
			rows[i].Mask, rows[i].By = 0, e.maskedByStage(i)
		}
		e.stageScores(&rows[i], i)
	}
	for _, name := range names {
		cells := t.NamedCells(name)
		for i, v := range cells.Values() {
			rows[i].Columns[name] = v
			if cells.Missing(i) {
				rows[i].Missing = append(rows[i].Missing, name)
			}
		}
	}
	return rows
}

// maskedByStage names the stage that dropped a row.
func (e *entry) maskedByStage(row int) string {
	at, stages := int(e.maskedBy[row]), e.asked.stages
	switch {
	case at < 0 && len(stages) > 0: // the whole policy, which is the only stage
		return stages[0].Use
	case at >= 0 && at < len(stages):
		return stages[at].Use
	}
	return "policy"
}

// stageScores fills in what the scorers gave a row. Of a row that was masked
// nobody has looked at the scores.
func (e *entry) stageScores(r *RecordedRow, row int) {
	n, at := len(e.totals), 0
	for s, gave := range e.gave {
		if !gave {
			continue
		}
		if v := e.scores[at*n+row]; r.Mask == 1 && finite(v) {
			r.StageScores[s] = &v
		}
		at++
	}
}

// recorded copies what the decision was made from; t is scratch.
func (e *entry) recorded(t *policy.Table) Recorded {
	e.frame.Table(t, e.frame.Columns())
	out := Recorded{Record: e.record(), Frame: &policy.Recording{}}
	out.Frame.Take(t)
	return out
}

// finite tells whether a number can be written as JSON.
func finite(v float64) bool { return v-v == 0 }
