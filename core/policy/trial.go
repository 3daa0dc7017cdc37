package policy

import (
	"context"
	"errors"
	"slices"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/plugins/abi"
)

// maxChanges bounds TrialReport.Changed.
const maxChanges = 20

// TrialReport is what came of asking a candidate about recorded requests.
type TrialReport struct {
	// Frames counts the recordings that were tried: all that were given and are
	// not empty, unless the context ended.
	Frames int `json:"frames"`
	// Decided counts those in which the candidate picked. The others lacked a
	// column, or it faulted, or its filters left nothing; each is counted.
	Decided int            `json:"decided"`
	Faults  map[string]int `json:"faults,omitempty"` // by reason
	Emptied int            `json:"emptied"`
	// LackingFrames counts the recordings without a column that the candidate
	// reads; Lacking names these columns in order.
	LackingFrames int      `json:"lacking_frames"`
	Lacking       []string `json:"lacking,omitempty"`
	// Compared counts the decided frames that the base decided too, by its
	// fallback where it faulted; Agreed those with the same pick, and Changed the
	// first of the others. All are 0 without a base.
	Compared int           `json:"compared"`
	Agreed   int           `json:"agreed"`
	Changed  []TrialChange `json:"changed,omitempty"`
	Regret   Regret        `json:"regret"`
	// Scorers has an element for each scorer of the candidate, lora scorers last;
	// nil for a whole policy.
	Scorers []TrialScorer `json:"scorers,omitempty"`
}

// TrialChange is a request for which the candidate picked otherwise.
type TrialChange struct {
	Frame     int      `json:"frame"` // its place among the recordings
	Base      TrialRow `json:"base"`
	Candidate TrialRow `json:"candidate"`
}

// TrialRow is a pick: the row of the recording and who that is.
type TrialRow struct {
	Row    int            `json:"row"`
	Worker fleet.WorkerID `json:"worker"`
	Rank   uint32         `json:"rank"`
}

// Regret is what the candidate's picks cost in the eyes of the base: its best
// total less its total of the candidate's pick, in the base's units.
type Regret struct {
	Sum float64 `json:"sum"`
	Max float64 `json:"max"`
	// Dropped counts picks that a filter of the base had dropped: they have no
	// total and are in neither sum nor maximum.
	Dropped int `json:"dropped"`
}

// TrialScorer is the part that one scorer had in the candidate's decisions.
type TrialScorer struct {
	StageName
	// Scored counts the decided frames in which it gave scores, Decisive those of
	// them in which another row is picked when it is left out.
	Scored   int `json:"scored"`
	Decisive int `json:"decisive"`
}

// Trial asks a candidate what it would have picked for recorded requests, and
// compares it with a base, which may be nil. Neither hears of it in its counts or
// its guard. The caller holds references to both. The same recordings give the
// same report, unless a stage keeps state. It ends early with ctx.
func Trial(ctx context.Context, base, candidate *Revision, frames []*Recording) TrialReport {
	tr := trial{base: base, candidate: candidate}
	for _, s := range candidate.pipeline.stages {
		if s.name.Kind == abi.KindScorer || s.name.Kind == abi.KindLoraScorer {
			tr.report.Scorers = append(tr.report.Scorers, TrialScorer{StageName: s.name})
		}
	}
	for i, f := range frames {
		if len(f.Rows()) > 0 && !tr.frame(ctx, i, f) {
			break
		}
	}
	slices.Sort(tr.report.Lacking)
	return tr.report
}

// trial keeps its tables and decisions from frame to frame.
type trial struct {
	base, candidate *Revision
	report          TrialReport
	table           Table
	decision, other Decision
}

// frame tries one recording; false when the context ended meanwhile.
func (tr *trial) frame(ctx context.Context, at int, f *Recording) bool {
	if lacking := f.Table(&tr.table, tr.candidate.Columns()); len(lacking) > 0 {
		tr.report.Frames++
		tr.report.LackingFrames++
		for _, name := range lacking {
			if !slices.Contains(tr.report.Lacking, name) {
				tr.report.Lacking = append(tr.report.Lacking, name)
			}
		}
		return true
	}
	err := tr.candidate.Replay(ctx, &tr.table, &tr.decision)
	fault, faulted := errors.AsType[*Fault](err)
	switch {
	case ctx.Err() != nil:
		return false
	case faulted:
		if tr.report.Faults == nil {
			tr.report.Faults = map[string]int{}
		}
		tr.report.Faults[fault.Reason]++
	case errors.Is(err, ErrEmptied):
		tr.report.Emptied++
	case err != nil:
		return false
	default:
		tr.report.Decided++
		tr.leaveOut(ctx)
		tr.compare(ctx, at, f)
	}
	tr.report.Frames++
	return true
}

// leaveOut decides again without each scorer in turn.
func (tr *trial) leaveOut(ctx context.Context) {
	for i := range tr.report.Scorers {
		if tr.decision.StageScores[i] == nil {
			continue
		}
		tr.report.Scorers[i].Scored++
		err := tr.candidate.replay(ctx, &tr.table, &tr.other, i)
		if err == nil && tr.other.Row != tr.decision.Row {
			tr.report.Scorers[i].Decisive++
		}
	}
}

// compare asks the base about the same request.
func (tr *trial) compare(ctx context.Context, at int, f *Recording) {
	if tr.base == nil || len(f.Table(&tr.table, tr.base.Columns())) > 0 {
		return
	}
	d := &tr.other
	err := tr.base.Replay(ctx, &tr.table, d)
	if _, faulted := errors.AsType[*Fault](err); faulted {
		tr.base.ReplayFallback(ctx, &tr.table, d)
	} else if err != nil {
		return
	}
	r, row := &tr.report, tr.decision.Row
	r.Compared++
	if len(d.Mask) > 0 && d.Mask[row] == 0 {
		r.Regret.Dropped++
	} else {
		high, _ := bestKept(d.Totals, d.Mask, 0)
		regret := d.Totals[high] - d.Totals[row]
		r.Regret.Sum = clamp(r.Regret.Sum + regret)
		r.Regret.Max = larger(regret, r.Regret.Max)
	}
	if d.Row == row {
		r.Agreed++
		return
	}
	if len(r.Changed) < maxChanges {
		r.Changed = append(r.Changed, TrialChange{at, trialRow(f, d.Row), trialRow(f, row)})
	}
}

func trialRow(f *Recording, row int) TrialRow {
	w := f.Rows()[row]
	return TrialRow{row, w.ID, w.Rank}
}
