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
)

// reasonEmptied is the reason of the fault of a revision whose filters would have
// left nothing to pick.
const reasonEmptied = "emptied"

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
	out.Micros, out.Traces = 0, nil
	switch {
	case errors.Is(err, policy.ErrEmptied):
		if err := s.emptied(&out, name, revision, err); err != nil {
			return err
		}
	case err != nil:
		return err
	default:
		out.decided(&got)
		if got.Refuses {
			break
		}
		out.chosen(&got, rec.Frame, s.workerName(got.Worker.ID))
		*out.Same = rec.Record.Pick.Worker == got.Worker.ID && rec.Record.Pick.Rank == got.Worker.Rank
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
		return "", 0, invalid("query parameter policy", fmt.Sprintf("%q is not allowed", clip(ref)), "NAME@REVISION, or NAME for its active revision")
	}
	return name, revision, nil
}

// workerName is a worker's name; empty when it has gone.
func (s *Server) workerName(id fleet.WorkerID) string {
	v, _ := s.parts.Workers.Worker(id.String())
	return v.Name
}

// emptied says that the revision's filters would have left nothing.
func (s *Server) emptied(out *decisionAnswer, name string, revision int, why error) error {
	p, err := s.parts.Policies.Show(name)
	if err != nil {
		return err
	}
	if revision == 0 {
		revision = p.Active
	}
	out.Policy = core.RecordedPolicy{Name: name, Revision: revision, Digests: []string{}, Stages: []policy.StageName{}}
	for i := range p.Revisions {
		if r := &p.Revisions[i]; r.Number == revision {
			out.Policy.Digests = append(out.Policy.Digests, r.Digests...)
		}
	}
	out.Fault = &core.RecordedFault{Reason: reasonEmptied, Detail: why.Error()}
	out.Tie, out.Fuel = core.RecordedTie{}, 0
	return nil
}

// chosen fills in what a revision chose.
func (a *decisionAnswer) chosen(got *host.ExplainReport, f *policy.Recording, worker string) {
	d := got.Decision
	a.Rows = replayedRows(got, f)
	a.Tie = core.RecordedTie{Rows: d.Tie.Rows, Draw: d.Tie.Draw}
	a.Pick = &core.RecordedPick{Worker: got.Worker.ID, Name: worker, Rank: got.Worker.Rank, By: d.By}
}

// decided fills in what there is of a decision, chosen or refused.
func (a *decisionAnswer) decided(got *host.ExplainReport) {
	d := got.Decision
	a.Policy = core.RecordedPolicy{Name: got.Policy, Revision: got.Revision, Digests: append([]string{}, got.Digests...), Stages: append([]policy.StageName{}, got.Stages...)}
	a.Tie, a.Fuel, a.Fault = core.RecordedTie{}, d.Fuel, nil
	if d.Fault != nil {
		a.Fault = &core.RecordedFault{Stage: d.Fault.Stage, Code: d.Fault.Code, Reason: d.Fault.Reason, Detail: d.Fault.Detail}
	}
	for _, tr := range d.Traces {
		if finite(tr.Value) {
			a.Traces = append(a.Traces, core.RecordedTrace{Stage: tr.Stage, Name: tr.Name, Value: tr.Value})
		}
	}
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
