package cli

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// trial is what came of trying a specification on recorded decisions.
type trial struct {
	Base          int            `json:"base"`
	Frames        int            `json:"frames"`
	Decided       int            `json:"decided"`
	Faults        map[string]int `json:"faults"`
	Emptied       int            `json:"emptied"`
	LackingFrames int            `json:"lacking_frames"`
	Lacking       []string       `json:"lacking"`
	Compared      int            `json:"compared"`
	Agreed        int            `json:"agreed"`
	Disagreed     int            `json:"disagreed"`
	Regret        struct {
		Sum     float64 `json:"sum"`
		Max     float64 `json:"max"`
		Dropped int     `json:"dropped"`
	} `json:"regret"`
	Scorers []struct {
		stage
		Scored   int `json:"scored"`
		Decisive int `json:"decisive"`
	} `json:"scorers"`
	Changed []struct {
		Decision  string   `json:"decision"`
		Base      trialRow `json:"base"`
		Candidate trialRow `json:"candidate"`
	} `json:"changed"`
}

type trialRow struct {
	Worker uint64 `json:"worker"`
	Rank   uint32 `json:"rank"`
}

// try prints what a specification would come to.
func (c *call) try(ctx context.Context, spec []byte, decisions int) error {
	path := policyPath(c.args[0]) + "?dry_run=1&decisions=" + strconv.Itoa(decisions)
	names := map[uint64]string{}
	if !c.json {
		names = c.workerNames(ctx)
	}
	return send(ctx, c, "PUT", path, spec, func(w io.Writer, got applied) {
		known := "it would be a new revision"
		if got.Revision != 0 {
			known = fmt.Sprintf("it is the same as revision %d", got.Revision)
		}
		fmt.Fprintf(w, "policy %s: nothing is kept; %s\ncolumns: %s\n", cell(got.Name), known, cell(strings.Join(got.Columns, ", ")))
		if got.Trial == nil {
			return
		}
		got.Trial.tables(w, names)
		if doubts := got.Trial.doubts(); len(doubts) > 0 || len(got.Warnings) > 0 {
			fmt.Fprintln(w)
			printWarnings(w, doubts)
		}
	})
}

// doubts warn of recorded decisions for which the specification did not pick:
// what the trial says holds for the others alone.
func (t *trial) doubts() []warning {
	var out []warning
	faults := 0
	for _, n := range t.Faults {
		faults += n
	}
	if faults > 0 {
		out = append(out, warning{Code: "faults", Message: fmt.Sprintf("%d of %d recorded decisions: %s; such requests get the fallback's pick, and faults trip a revision", faults, t.Frames, tally(t.Faults))})
	}
	if t.LackingFrames > 0 {
		out = append(out, warning{Code: "lacking", Message: fmt.Sprintf("%d of %d recorded decisions do not have %s and were not tried: records have the columns that the kept revisions read, so apply without activating, let requests come, and try again", t.LackingFrames, t.Frames, strings.Join(t.Lacking, ", "))})
	}
	return out
}

func (t *trial) tables(w io.Writer, names map[uint64]string) {
	base := "no active revision"
	if t.Base != 0 {
		base = fmt.Sprintf("revision %d", t.Base)
	}
	fmt.Fprintf(w, "\ntried on %d recorded decisions against %s\n", t.Frames, base)
	row(w, "DECIDED", "COMPARED", "AGREED", "DISAGREED", "REGRET", "MAX", "EMPTIED", "LACKING", "FAULTS")
	row(w, t.Decided, t.Compared, t.Agreed, t.Disagreed, float(t.Regret.Sum), float(t.Regret.Max), t.Emptied, t.LackingFrames, tally(t.Faults))
	if len(t.Scorers) > 0 {
		fmt.Fprintln(w)
		row(w, "SCORER", "SCORED", "DECISIVE")
		for _, s := range t.Scorers {
			row(w, s.short(), s.Scored, s.Decisive)
		}
	}
	if len(t.Changed) > 0 {
		fmt.Fprintln(w)
		row(w, "DECISION", "ACTIVE PICKS", "THIS PICKS")
		for _, c := range t.Changed {
			row(w, c.Decision, rankName(names, c.Base.Worker, c.Base.Rank), rankName(names, c.Candidate.Worker, c.Candidate.Rank))
		}
	}
}
