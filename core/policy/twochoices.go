package policy

import (
	"context"
	"encoding/json"
)

// twoChoices draws two different kept rows and takes the one with the better
// total; between equals the host's draw for ties decides. The draws are the
// first two of the request's seed.
type twoChoices struct{}

func (twoChoices) Columns() ColumnSet { return ColumnSet{} }

func (twoChoices) Pick(_ context.Context, t *Table, totals []float64, _ *StageReport) (Choice, Verdict, error) {
	n := t.countKept()
	if n == 1 {
		return Choice{HostDraws: true}, Answered, nil
	}
	first := int(unit(SplitMix64(t.Seed)) * float64(n))
	second := int(unit(SplitMix64(t.Seed+splitMixGamma)) * float64(n-1))
	if second >= first {
		second++
	}
	a, b := t.nthKept(min(first, second)), t.nthKept(max(first, second))
	c := Choice{Row: a, Tie: Tie{Rows: 1}}
	switch {
	case totals[b] > totals[a]:
		c.Row = b
	case totals[b] == totals[a]:
		if c.Tie = tieOf(2, TieDraw(t.Seed)); c.Tie.Draw >= 0.5 {
			c.Row = b
		}
	}
	return c, Answered, nil
}

func (twoChoices) CheckOverrides(map[string]json.RawMessage) ([]string, error) { return nil, nil }

func (twoChoices) Close() error { return nil }

// bestTotal leaves the pick to the host: the highest total, ties by its draw. It has
// no configuration, but a request may ask for a draw as by softmax: that is the
// default picker, and its caller need not know which one decides.
type bestTotal struct{ softmax }
