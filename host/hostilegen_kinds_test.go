package host_test

import (
	"cmp"
	"context"
	"fmt"
	"math"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/host"
	"github.com/routerd/routerd/host/smith/hostiletest"
	"github.com/routerd/routerd/plugins/abi"
)

// loadedAs loads a specimen as a stage of its kind.
func loadedAs(ctx context.Context, r *host.Runtime, sp hostiletest.Specimen) (policy.Scorer, error) {
	kind := cmp.Or(sp.Kind, abi.KindScorer)
	s, err := r.Stage(ctx, kind, "module:hostile", sp.Bytes, host.Digest(sp.Bytes), nil)
	if err != nil {
		return nil, err
	}
	if scorer, ok := s.(policy.Scorer); ok {
		return scorer, nil
	}
	return asScorer{s}, nil
}

// asScorer shows what a stage of another kind decides as scores: each row's
// negated number where it is what a good guest decides, else NaN. What the
// router could not go on with is an error that is no fault.
type asScorer struct{ policy.Stage }

var _ policy.Scorer = asScorer{}

// Score calls the stage.
func (s asScorer) Score(ctx context.Context, t *policy.Table, scores []float64, r *policy.StageReport) (policy.Verdict, error) {
	for row := range scores {
		scores[row] = 0 - float64(row)
	}
	switch stage := s.Stage.(type) {
	case policy.Filter:
		keep := everyOther(t.Len())
		v, err := stage.Filter(ctx, t, keep, r)
		return v, cmp.Or(err, maskSound(keep, everyOther(t.Len()), scores))
	case policy.Picker:
		c, v, err := stage.Pick(ctx, t, make([]float64, t.Len()), r)
		return v, cmp.Or(err, pickSound(v, c, nil, scores))
	case policy.Whole:
		keep, given := keepAll(t.Len()), make([]float64, t.Len())
		c, v, err := stage.Decide(ctx, t, given, keep, r)
		if err == nil && v == policy.Answered {
			copy(scores, given)
			err = cmp.Or(maskSound(keep, keepAll(t.Len()), scores), pickSound(v, c, keep, scores))
		}
		return v, err
	}
	return 0, fmt.Errorf("a stage of type %T", s.Stage)
}

// everyOther is a mask that filters before have made; row 0 is in.
func everyOther(n int) []byte {
	keep := make([]byte, n)
	for row := 0; row < n; row += 2 {
		keep[row] = 1
	}
	return keep
}

// maskSound tells whether a mask holds 0 and 1 only, and 1 only where it was so
// before; rows that were dropped have no score.
func maskSound(keep, before []byte, scores []float64) error {
	for row, b := range keep {
		if b > before[row] {
			return fmt.Errorf("row %d has mask byte %d, and had %d", row, b, before[row])
		}
		if b < before[row] {
			scores[row] = math.NaN()
		}
	}
	return nil
}

// pickSound tells whether a choice is a row that is kept; if it is not the
// first, no row has a score.
func pickSound(v policy.Verdict, c policy.Choice, keep []byte, scores []float64) error {
	if v != policy.Answered || c.HostDraws {
		return nil
	}
	if c.Row < 0 || c.Row >= len(scores) || len(keep) > 0 && keep[c.Row] != 1 {
		return fmt.Errorf("picked row %d of %d", c.Row, len(scores))
	}
	if c.Row != 0 {
		for row := range scores {
			scores[row] = math.NaN()
		}
	}
	return nil
}
