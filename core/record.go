package core

import (
	"time"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/plugins/abi"
)

// DecisionRecord explains one decision: what the policy saw and what came of
// it. It holds hashes and counts, never a prompt, a token or a session id.
type DecisionRecord struct {
	ID        string          `json:"id"`
	At        time.Time       `json:"at"`
	Partition PartitionRef    `json:"partition"`
	Kind      string          `json:"kind"`
	Surface   string          `json:"surface"`
	Policy    RecordedPolicy  `json:"policy"`
	Request   RecordedRequest `json:"request"`
	// Rows are the candidates; nil in lists.
	Rows []RecordedRow `json:"rows,omitempty"`
	Tie  RecordedTie   `json:"tie"`
	Pick RecordedPick  `json:"pick"`
	// Fault is nil when no stage faulted.
	Fault *RecordedFault `json:"fault"`
	Fuel  uint64         `json:"fuel"`
	// Micros is the time from start to commit in microseconds.
	Micros int64 `json:"us"`
}

// PartitionRef names a partition.
type PartitionRef struct {
	Model string `json:"model"`
	Group string `json:"group"`
}

// RecordedPolicy is the revision that was asked.
type RecordedPolicy struct {
	Name     string   `json:"name"`
	Revision int      `json:"revision"`
	Digests  []string `json:"digests"`
	// Canary tells that the revision was asked as a canary.
	Canary bool `json:"canary,omitempty"`
}

// RecordedRequest is what the record keeps of the request.
type RecordedRequest struct {
	Tokens  int    `json:"tokens"`
	Blocks  int    `json:"blocks"`
	Adapter string `json:"adapter"`
	// SessionHash is the session's id as a policy sees it; 0 for none.
	SessionHash uint64 `json:"session_hash"`
	Seed        uint64 `json:"seed,string"`
	Flags       uint32 `json:"flags"`
}

// RecordedRow is one candidate. Columns holds the registry default where a
// signal was missing, whatever a stage's manifest puts there for itself. Mask is
// 1 for a row that the policy could pick; By names the stage that masked it.
// StageScores has one value a scorer of the pipeline, null where it gave none.
type RecordedRow struct {
	Worker      fleet.WorkerID     `json:"worker"`
	Rank        uint32             `json:"rank"`
	Columns     map[string]float64 `json:"columns"`
	Mask        int                `json:"mask"`
	By          string             `json:"by,omitempty"`
	StageScores []*float64         `json:"stage_scores"`
	Total       float64            `json:"total"`
}

// RecordedTie tells how many rows shared the best total and the draw in [0, 1)
// that chose among them; 0 when there was nothing to draw.
type RecordedTie struct {
	Rows int     `json:"rows"`
	Draw float64 `json:"draw"`
}

// RecordedPick is the outcome.
type RecordedPick struct {
	Worker fleet.WorkerID `json:"worker"`
	Name   string         `json:"name"`
	Rank   uint32         `json:"rank"`
	By     policy.By      `json:"by"`
}

// RecordedFault is what a stage did wrong.
type RecordedFault struct {
	Stage  string `json:"stage"`
	Code   string `json:"code"`
	Reason string `json:"reason"`
	Detail string `json:"detail"`
}

// entry is a record in the form in which it is kept: flat slices that are
// reused when it is evicted.
type entry struct {
	id        string
	at        time.Time
	partition fleet.PartitionKey
	kind      Kind
	surface   string
	policy    string
	revision  int
	digests   []string
	canary    bool
	request   RecordedRequest
	by        policy.By
	name      string
	pick      fleet.Worker
	tie       policy.Tie
	fault     *policy.Fault
	fuel      uint64
	micros    int64

	rows    []fleet.Worker
	columns policy.ColumnSet
	values  []float64 // column after column
	stages  []bool    // which scorers gave scores
	scores  []float64 // scorer after scorer, of those that did
	totals  []float64
	cost    int
}

func (e *entry) fill(p *Partition, a *attempt, sel *Selection, elapsed time.Duration) {
	d := &a.decision
	e.id, e.at, e.partition = sel.DecisionID, a.started, p.key
	e.kind, e.surface = a.req.Kind, a.req.Surface
	e.policy, e.revision, e.digests = a.asked.policy, a.asked.revision, a.asked.digests
	e.canary = a.asked.canary
	e.request = RecordedRequest{
		Tokens: a.tokens, Blocks: a.blockCount, Adapter: a.req.Adapter,
		SessionHash: uint64(a.table.Field(abi.FieldSession)), Seed: a.seed, Flags: a.table.Flags,
	}
	e.by, e.name, e.pick = d.By, sel.Name, sel.Worker
	e.tie, e.fault, e.fuel, e.micros = d.Tie, d.Fault, d.Fuel, elapsed.Microseconds()
	e.rows = append(e.rows[:0], a.table.Rows...)
	e.columns = a.table.Set()
	e.values = e.values[:0]
	for i := range abi.NumColumns {
		e.values = append(e.values, a.table.Column(abi.Column(i))...)
	}
	for _, name := range e.columns.Labels() {
		e.values = append(e.values, a.table.Label(name)...)
	}
	e.stages, e.scores = e.stages[:0], e.scores[:0]
	for _, s := range d.StageScores {
		e.stages = append(e.stages, s != nil)
		e.scores = append(e.scores, s...)
	}
	e.totals = append(e.totals[:0], d.Totals...)
}

// bytes is what the entry holds in memory, its reused buffers at their full
// size.
func (e *entry) bytes() int {
	const fixed, row, number = 512, 16, 8
	return fixed + len(e.id) + row*cap(e.rows) + number*(cap(e.values)+cap(e.scores)+cap(e.totals)) + cap(e.stages)
}

// record renders the entry.
func (e *entry) record(withRows bool) DecisionRecord {
	r := DecisionRecord{
		ID: e.id, At: e.at, Partition: PartitionRef{e.partition.Model, e.partition.Group},
		Kind: e.kind.String(), Surface: e.surface,
		Policy:  RecordedPolicy{e.policy, e.revision, append([]string{}, e.digests...), e.canary},
		Request: e.request,
		Tie:     RecordedTie{e.tie.Rows, e.tie.Draw},
		Pick:    RecordedPick{e.pick.ID, e.name, e.pick.Rank, e.by},
		Fuel:    e.fuel, Micros: e.micros,
	}
	if f := e.fault; f != nil {
		r.Fault = &RecordedFault{f.Stage, f.Code, f.Reason, f.Detail}
	}
	if withRows {
		r.Rows = e.recordedRows()
	}
	return r
}

func (e *entry) recordedRows() []RecordedRow {
	names := e.columns.Names()
	n := len(e.rows)
	rows := make([]RecordedRow, n)
	for i, w := range e.rows {
		columns := make(map[string]float64, len(names))
		for c, name := range names {
			columns[name] = e.values[c*n+i]
		}
		scores := make([]*float64, len(e.stages))
		at := 0
		for s, gave := range e.stages {
			if gave {
				v := e.scores[at*n+i]
				scores[s] = &v
				at++
			}
		}
		rows[i] = RecordedRow{Worker: w.ID, Rank: w.Rank, Columns: columns, Mask: 1, StageScores: scores, Total: e.totals[i]}
	}
	return rows
}
