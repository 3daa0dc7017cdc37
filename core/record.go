package core

import (
	"encoding/json"
	"time"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/fleet"
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
	// Fault is the first one, or the one that ended the request; nil when no stage
	// faulted and the revision had not tripped.
	Fault *RecordedFault `json:"fault"`
	// Traces are what the stages put down for the record.
	Traces []RecordedTrace `json:"traces,omitempty"`
	Fuel   uint64          `json:"fuel"`
	// Micros is the time from start to commit in microseconds, without that in
	// which the request waited: for a rank that is not busy, or for its session.
	Micros       int64 `json:"us"`
	WaitedMicros int64 `json:"waited_us"`
}

// PartitionRef names a partition.
type PartitionRef struct {
	Model string `json:"model"`
	Group string `json:"group"`
}

// RecordedPolicy is the revision that was asked. Stages are all that it has, in
// the order in which they run: the stage scores of a row are those of its
// scorers, lora-scorers and whole policy, in this order.
type RecordedPolicy struct {
	Name     string             `json:"name"`
	Revision int                `json:"revision"`
	Digests  []string           `json:"digests"`
	Stages   []policy.StageName `json:"stages"`
	// Canary tells that the revision was asked as a canary.
	Canary bool `json:"canary,omitempty"`
}

// RecordedRequest is what the record keeps of the request.
type RecordedRequest struct {
	Tokens  int    `json:"tokens"`
	Blocks  int    `json:"blocks"`
	Adapter string `json:"adapter"`
	// Class is the one that the request names, as the rules see it; it waits in the
	// class default where the queue has none of that name.
	Class string `json:"class"`
	// SessionHash is the session's id as a policy sees it; 0 for none.
	SessionHash uint64 `json:"session_hash"`
	Seed        uint64 `json:"seed,string"`
	Flags       uint32 `json:"flags"`
}

// RecordedRow is one candidate. Columns holds the registry default where a
// signal was missing, whatever a stage's manifest puts there for itself; Missing
// names those columns. Mask is 1 for a row that the policy could pick; By names
// the stage that dropped it otherwise. StageScores has one value a scorer, null
// where it gave none; of a row that was dropped nobody reads the scores.
type RecordedRow struct {
	Worker      fleet.WorkerID     `json:"worker"`
	Rank        uint32             `json:"rank"`
	Columns     map[string]float64 `json:"columns"`
	Missing     []string           `json:"missing,omitempty"`
	Mask        int                `json:"mask"`
	By          string             `json:"by,omitempty"`
	StageScores []*float64         `json:"stage_scores"`
	Total       float64            `json:"total"`
}

// RecordedTie tells among how many rows a draw in [0, 1) chose: those that shared
// the best total, or those that a picker drew among. The draw is 0 when there was
// nothing to draw.
type RecordedTie struct {
	Rows int     `json:"rows"`
	Draw float64 `json:"draw"`
}

// RecordedPick is the outcome; the zero value, which is null in JSON, where the
// policy has ended the request without a pick.
type RecordedPick struct {
	Worker fleet.WorkerID `json:"worker"`
	Name   string         `json:"name"`
	Rank   uint32         `json:"rank"`
	By     policy.By      `json:"by"`
}

// MarshalJSON writes null for no pick.
func (p RecordedPick) MarshalJSON() ([]byte, error) {
	if p.By == "" {
		return []byte("null"), nil
	}
	type plain RecordedPick
	return json.Marshal(plain(p))
}

// ReasonEmptied is the reason of the fault in the record of a decision that a
// filter whose on_empty is fail has left without a candidate. It has no code.
const ReasonEmptied = "emptied"

// ReasonTripped is the reason of the fault in the record of a decision that the
// policy was not asked for, because its revision had tripped before. It has
// neither code nor stage.
const ReasonTripped = "tripped"

// RecordedTrace is a value that a stage put down.
type RecordedTrace struct {
	Stage string  `json:"stage"`
	Name  string  `json:"name"`
	Value float64 `json:"value"`
}

// RecordedFault is what a stage did wrong.
type RecordedFault struct {
	Stage  string `json:"stage"`
	Code   string `json:"code"`
	Reason string `json:"reason"`
	Detail string `json:"detail"`
}
