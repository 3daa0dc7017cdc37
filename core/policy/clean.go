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
	slices.Sort(spare)
	mid := len(spare) / 2
	median := spare[mid]
	if len(spare)%2 == 0 {
		median = (spare[mid-1] + spare[mid]) * 0.5
	}
	if math.IsInf(median, 0) { // both halves near the largest finite number
		median = float64(spare[mid-1]*0.5) + float64(spare[mid]*0.5)
	}
	for i, v := range scores {
		if v-v != 0 {
			scores[i] = median
		}
	}
	return spare, cleaned, true
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
