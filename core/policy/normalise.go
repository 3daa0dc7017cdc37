package policy

import (
	"cmp"
	"slices"
)

// Ways to make the scores of different scorers comparable.
const (
	normaliseNone   = "none"
	normaliseMinMax = "minmax"
	normaliseRank   = "rank"
)

// normalise writes the stage's scores in the way that the specification asks
// for into out, which has the length of scores. order is scratch space; what it
// grew to is returned.
func normalise(how string, scores, out []float64, order []int32) []int32 {
	switch how {
	case normaliseMinMax:
		minMax(scores, out)
	case normaliseRank:
		return rankOf(scores, out, order)
	default:
		for i, v := range scores {
			out[i] = clamp(v)
		}
	}
	return order
}

// minMax maps the smallest score to 0 and the largest to 1; all equal gives
// 0.5. Scores are clamped first, so that the range is finite.
func minMax(scores, out []float64) {
	low, high := clamp(scores[0]), clamp(scores[0])
	for _, v := range scores[1:] {
		v = clamp(v)
		if v < low {
			low = v
		}
		if v > high {
			high = v
		}
	}
	span := high - low
	for i, v := range scores {
		if span == 0 {
			out[i] = 0.5
			continue
		}
		out[i] = (clamp(v) - low) / span
	}
}

// rankOf maps scores to their ascending rank over n − 1, equal scores sharing
// the average of their ranks; one row gives 0.5.
func rankOf(scores, out []float64, order []int32) []int32 {
	n := len(scores)
	if n == 1 {
		out[0] = 0.5
		return order
	}
	order = slices.Grow(order[:0], n)[:n]
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortFunc(order, func(a, b int32) int { return cmp.Compare(scores[a], scores[b]) })
	for i := 0; i < n; {
		j := i
		for j+1 < n && scores[order[j+1]] == scores[order[i]] {
			j++
		}
		rank := float64(i+j) * 0.5 / float64(n-1)
		for ; i <= j; i++ {
			out[order[i]] = rank
		}
	}
	return order
}
