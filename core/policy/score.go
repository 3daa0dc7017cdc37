package policy

import (
	"context"
	"fmt"
	"slices"

	"github.com/routerd/routerd/plugins/abi"
)

type scorerStage struct {
	use       string
	scorer    Scorer
	weight    float64
	normalise string
	onError   string
	lora      bool // only for requests with an adapter
}

// score adds the term of one scorer to the totals of the kept rows.
func (p *Pipeline) score(ctx context.Context, i int, t *Table, d *Decision) error {
	st := &p.scorers[i]
	scores, verdict, err := st.call(ctx, i, t, d)
	if err != nil {
		_, err = d.failed(ctx, st.use, st.onError, err)
		return err
	}
	if verdict == Abstained {
		d.Abstained++
		return nil
	}
	d.StageScores[i] = scores
	d.add(t, st, scores)
	return nil
}

// call runs one scorer and makes sure that its scores can be believed. Where a
// lora scorer abstains the built-in order is in its place.
func (st *scorerStage) call(ctx context.Context, i int, t *Table, d *Decision) ([]float64, Verdict, error) {
	r, err := d.begin(ctx, st.use)
	if err != nil {
		return nil, 0, err
	}
	scores := d.buffer(i, t.Len())
	verdict, err := st.scorer.Score(ctx, t, scores, r)
	d.note(st.use, r)
	if err != nil {
		return nil, 0, err
	}
	if verdict == Abstained {
		if !st.lora {
			return nil, Abstained, nil
		}
		d.Abstained++
		_, _ = loraAffinity{}.Score(ctx, t, scores, r) // never fails
	}
	if r.Finite && verdict == Answered {
		return scores, Answered, nil
	}
	return scores, Answered, d.believe(st.use, t, scores, r.Fuel)
}

// believe cleans the scores of the kept rows and makes the others 0; an error
// is a *Fault.
func (d *Decision) believe(use string, t *Table, scores []float64, fuel uint64) error {
	var cleaned int
	var ok bool
	d.spare, cleaned, ok = CleanKept(scores, t.mask, d.spare)
	if !ok {
		return &Fault{
			Stage: use, Code: string(abi.ENaN), Reason: "nan", Counts: true, Fuel: fuel,
			Detail: fmt.Sprintf("%d of %d candidates have no finite score", cleaned, t.countKept()),
		}
	}
	d.Cleaned += cleaned
	for row, keep := range t.mask {
		if keep == 0 {
			scores[row] = 0
		}
	}
	return nil
}

// add adds a scorer's term to the totals, in the way that the specification asks
// for.
func (d *Decision) add(t *Table, st *scorerStage, scores []float64) {
	if t.mask == nil && st.normalise == normaliseNone {
		for row, v := range scores[:len(d.Totals)] {
			d.Totals[row] = clamp(d.Totals[row] + float64(st.weight*clamp(v)))
		}
		return
	}
	if t.mask == nil {
		d.order = normalise(st.normalise, scores, d.normalised, d.order)
		for row, v := range d.normalised {
			d.Totals[row] = clamp(d.Totals[row] + float64(st.weight*v))
		}
		return
	}
	d.spare = d.spare[:0]
	for row, keep := range t.mask {
		if keep == 1 {
			d.spare = append(d.spare, scores[row])
		}
	}
	kept := slices.Grow(d.normalised[:0], len(d.spare))[:len(d.spare)]
	d.order = normalise(st.normalise, d.spare, kept, d.order)
	nth := 0
	for row, keep := range t.mask {
		if keep == 1 {
			d.Totals[row] = clamp(d.Totals[row] + float64(st.weight*kept[nth]))
			nth++
		}
	}
}
