package policy

import (
	"math"
	"slices"
)

// MaxScore bounds the absolute value of a score and of a sum of scores.
const MaxScore = 1e300

// Clean gives every score that is not finite the median of the finite ones (of
// an even number: half the sum of the middle two) and turns −0 into 0. It
// returns how many it replaced, and ok false when more than half were no
// opinion: then nothing was replaced. spare is scratch space of any size; what
// it grew to is returned for reuse.
func Clean(scores, spare []float64) (grown []float64, cleaned int, ok bool) {
	for i, v := range scores {
		scores[i] = v + 0 // −0 becomes 0
		if v-v != 0 {     // NaN or an infinity
			cleaned++
		}
	}
	if cleaned == 0 {
		return spare, 0, true
	}
	if 2*cleaned > len(scores) {
		return spare, cleaned, false
	}
	spare = spare[:0]
	for _, v := range scores {
		if v-v == 0 {
			spare = append(spare, v)
		}
	}
	median := medianOf(spare)
	for i, v := range scores {
		if v-v != 0 {
			scores[i] = median
		}
	}
	return spare, cleaned, true
}

// CleanKept is Clean over the rows whose byte in mask is 1 alone: the others are
// neither read nor counted nor written. A nil mask keeps every row.
func CleanKept(scores []float64, mask []byte, spare []float64) (grown []float64, cleaned int, ok bool) {
	if mask == nil {
		return Clean(scores, spare)
	}
	kept := 0
	spare = spare[:0]
	for i, v := range scores {
		if mask[i] != 1 {
			continue
		}
		kept++
		scores[i] = v + 0 // −0 becomes 0
		if v-v == 0 {
			spare = append(spare, v)
		}
	}
	cleaned = kept - len(spare)
	if cleaned == 0 || 2*cleaned > kept {
		return spare, cleaned, cleaned == 0
	}
	median := medianOf(spare)
	for i, v := range scores {
		if mask[i] == 1 && v-v != 0 {
			scores[i] = median
		}
	}
	return spare, cleaned, true
}

// medianOf sorts values, which are finite and at least one, and returns their
// median.
func medianOf(values []float64) float64 {
	slices.Sort(values)
	mid := len(values) / 2
	if len(values)%2 == 1 {
		return values[mid]
	}
	median := (values[mid-1] + values[mid]) * 0.5
	if math.IsInf(median, 0) { // both halves near the largest finite number
		median = float64(values[mid-1]*0.5) + float64(values[mid]*0.5)
	}
	return median
}

// clamp bounds v to ±MaxScore.
func clamp(v float64) float64 {
	switch {
	case v > MaxScore:
		return MaxScore
	case v < -MaxScore:
		return -MaxScore
	}
	return v
}
