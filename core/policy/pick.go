package policy

import (
	"context"
	"fmt"

	"github.com/routerd/routerd/plugins/abi"
)

type pickerStage struct {
	use      string
	picker   Picker
	onError  string
	upstream bool // reads upstream.score
}

// pick chooses by the totals of the kept rows.
func (p *Pipeline) pick(ctx context.Context, t *Table, d *Decision) error {
	st := &p.picker
	choice, verdict, err := st.call(ctx, t, d)
	if err != nil {
		if skip, err := d.failed(ctx, st.use, st.onError, err); !skip {
			return err
		}
		choice.HostDraws = true
	}
	if verdict == Abstained {
		d.Abstained++
		choice.HostDraws = true
	}
	d.choose(t, choice)
	return nil
}

func (st *pickerStage) call(ctx context.Context, t *Table, d *Decision) (Choice, Verdict, error) {
	r, err := d.begin(ctx, st.use)
	if err != nil {
		return Choice{}, 0, err
	}
	if st.upstream {
		copy(t.Fill(abi.ColUpstreamScore), d.Totals)
	}
	choice, verdict, err := st.picker.Pick(ctx, t, d.Totals, r)
	d.note(st.use, r)
	if err != nil || verdict == Abstained {
		return Choice{}, verdict, err
	}
	return choice, Answered, checkChoice(st.use, t, choice, r.Fuel)
}

// checkChoice refuses a choice that is no kept row.
func checkChoice(use string, t *Table, c Choice, fuel uint64) error {
	if c.HostDraws || c.Row >= 0 && c.Row < t.Len() && t.Kept(c.Row) {
		return nil
	}
	what := "a filter dropped it"
	if c.Row < 0 || c.Row >= t.Len() {
		what = fmt.Sprintf("there are %d", t.Len())
	}
	return &Fault{
		Stage: use, Code: string(abi.EPick), Reason: "pick", Counts: true, Fuel: fuel,
		Detail: fmt.Sprintf("picked row %d; %s", c.Row, what),
	}
}

// choose makes a checked choice the decision's.
func (d *Decision) choose(t *Table, c Choice) {
	if c.HostDraws {
		d.Row, d.Tie = bestKept(d.Totals, t.mask, t.Seed)
		return
	}
	d.Row, d.Tie = c.Row, c.Tie
	d.Tie.Rows = max(d.Tie.Rows, 1)
}

type wholeStage struct {
	use     string
	whole   Whole
	onError string
}

// decideWhole fills d from a policy that does everything in one call.
func (p *Pipeline) decideWhole(ctx context.Context, t *Table, d *Decision) error {
	st := p.whole
	scores := d.buffer(0, t.Len())
	choice, verdict, err := st.call(ctx, t, d, scores)
	if err != nil {
		_, err = d.failed(ctx, st.use, st.onError, err)
		return err
	}
	if verdict == Abstained {
		d.Abstained++
		return errNoOpinion
	}
	d.StageScores[0] = scores
	for row, v := range scores {
		d.Totals[row] = clamp(v)
	}
	d.choose(t, choice)
	return nil
}

// call runs the policy and checks its mask, its scores and its choice as those
// of a filter, a scorer and a picker.
func (st *wholeStage) call(ctx context.Context, t *Table, d *Decision, scores []float64) (Choice, Verdict, error) {
	r, err := d.begin(ctx, st.use)
	if err != nil {
		return Choice{}, 0, err
	}
	keep := d.verdict(t)
	choice, verdict, err := st.whole.Decide(ctx, t, scores, keep, r)
	d.note(st.use, r)
	if err != nil || verdict == Abstained {
		return Choice{}, verdict, err
	}
	if err := checkMask(st.use, keep, nil, r.Fuel); err != nil {
		return Choice{}, 0, err
	}
	kept, dropped := countVerdict(keep, nil)
	if kept == 0 {
		return Choice{}, 0, &Fault{
			Stage: st.use, Code: string(abi.EPick), Reason: "pick", Counts: true, Fuel: r.Fuel,
			Detail: "kept no candidate to pick from",
		}
	}
	if dropped > 0 {
		d.mask(t, keep, wholeDropped)
	}
	if err := d.believe(st.use, t, scores, r.Fuel); err != nil {
		return Choice{}, 0, err
	}
	return choice, Answered, checkChoice(st.use, t, choice, r.Fuel)
}

// wholeDropped is in Decision.MaskedBy for rows that a whole policy dropped.
const wholeDropped = -1
