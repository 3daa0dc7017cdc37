package admin

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/valyala/fasthttp"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/host"
	"github.com/routerd/routerd/host/store"
	"github.com/routerd/routerd/internal/httpapi"
)

// replayDecision answers what another revision would have chosen.
func (s *Server) replayDecision(ctx context.Context, x *exchange, ref string) error {
	name, revision, err := revisionRef(ref)
	if err != nil {
		return err
	}
	rec, ok := s.parts.Decisions.Recording(x.name)
	if !ok {
		return noDecision(x.name)
	}
	got, err := s.parts.Policies.Explain(ctx, name, revision, rec.Frame)
	out := decisionAnswer{DecisionRecord: rec.Record, Recorded: &rec.Record.Pick, Same: new(bool)}
	if err != nil {
		return err
	}
	out.Micros, out.WaitedMicros, out.Traces = 0, 0, nil
	out.decided(&got, rec.Frame)
	if got.Ended == nil {
		out.Pick = &core.RecordedPick{Worker: got.Worker.ID, Name: s.workerName(got.Worker.ID), Rank: got.Worker.Rank, By: got.Decision.By}
	}
	was, is := out.Recorded, out.Pick
	switch {
	case is == nil: // and nobody was picked then
		*out.Same = was.By == ""
	case was.By != "":
		*out.Same = was.Worker == is.Worker && was.Rank == is.Rank
	}
	return x.reply(fasthttp.StatusOK, out)
}

// revisionRef reads NAME@REVISION, or NAME for the active one.
func revisionRef(ref string) (name string, revision int, err error) {
	name, number, numbered := strings.Cut(ref, "@")
	if numbered {
		revision, err = strconv.Atoi(number)
	}
	if err != nil || numbered && revision < 1 || store.CheckName(name) != nil {
		return "", 0, httpapi.Invalid("query parameter policy", fmt.Sprintf("%q is not allowed", httpapi.Clip(ref)), "NAME@REVISION, or NAME for its active revision")
	}
	return name, revision, nil
}

// workerName is a worker's name; empty when it has gone.
func (s *Server) workerName(id fleet.WorkerID) string {
	v, _ := s.parts.Workers.Worker(id.String())
	return v.Name
}

// decided fills in what a revision made of the request, all but the pick.
func (a *decisionAnswer) decided(got *host.ExplainReport, f *policy.Recording) {
	d := got.Decision
	a.Policy = core.RecordedPolicy{Name: got.Policy, Revision: got.Revision, Digests: append([]string{}, got.Digests...), Stages: append([]policy.StageName{}, got.Stages...)}
	a.Rows = replayedRows(got, f)
	a.Tie, a.Fuel, a.Fault = core.RecordedTie{Rows: d.Tie.Rows, Draw: d.Tie.Draw}, d.Fuel, replayedFault(got)
	for _, tr := range d.Traces {
		if finite(tr.Value) {
			a.Traces = append(a.Traces, core.RecordedTrace{Stage: tr.Stage, Name: tr.Name, Value: tr.Value})
		}
	}
}

// replayedFault is the fault that ended the request, or else the first one, as the
// records of decisions have it.
func replayedFault(got *host.ExplainReport) *core.RecordedFault {
	f := got.Decision.Fault
	if fault, ok := errors.AsType[*policy.Fault](got.Ended); ok {
		f = fault
	} else if got.Ended != nil {
		f = &policy.Fault{Reason: core.ReasonEmptied, Detail: got.Ended.Error()}
		if emptied, ok := errors.AsType[*policy.EmptiedError](got.Ended); ok {
			f.Stage = emptied.Use
		}
	}
	if f == nil {
		return nil
	}
	return &core.RecordedFault{Stage: f.Stage, Code: f.Code, Reason: f.Reason, Detail: f.Detail}
}

// replayedRows are the recorded candidates with what the revision made of them.
func replayedRows(got *host.ExplainReport, f *policy.Recording) []core.RecordedRow {
	d := got.Decision
	set := f.Columns()
	names := set.Names()
	rows := make([]core.RecordedRow, len(f.Rows()))
	for i, w := range f.Rows() {
		r := &rows[i]
		*r = core.RecordedRow{Worker: w.ID, Rank: w.Rank, Mask: 1, Columns: make(map[string]float64, len(names)), StageScores: make([]*float64, len(d.StageScores))}
		if finite(d.Totals[i]) {
			r.Total = d.Totals[i]
		}
		for _, name := range names {
			v, missing, _ := f.Value(name, i)
			r.Columns[name] = v
			if missing {
				r.Missing = append(r.Missing, name)
			}
		}
		if len(d.Mask) > 0 && d.Mask[i] == 0 {
			r.Mask, r.By = 0, maskedBy(got, i)
			continue // nobody has looked at its scores
		}
		for stage, scores := range d.StageScores {
			if i < len(scores) && finite(scores[i]) { // it gave some
				v := scores[i]
				r.StageScores[stage] = &v
			}
		}
	}
	return rows
}

// maskedBy names the stage that dropped a row.
func maskedBy(got *host.ExplainReport, row int) string {
	at := max(int(got.Decision.MaskedBy[row]), 0) // −1 is the whole policy, which is the only stage
	if at >= len(got.Stages) {
		return "policy"
	}
	return got.Stages[at].Use
}

// finite tells whether a number can be written as JSON.
func finite(v float64) bool { return v-v == 0 }
