package policy

const splitMixGamma = 0x9E3779B97F4A7C15

// SplitMix64 is the first output of the SplitMix64 generator with the given
// state. Guests and the host draw from it, so that one seed gives one choice.
func SplitMix64(state uint64) uint64 {
	z := state + splitMixGamma
	z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9
	z = (z ^ (z >> 27)) * 0x94D049BB133111EB
	return z ^ (z >> 31)
}

// TieDraw is the number in [0, 1) that breaks ties for a seed.
func TieDraw(seed uint64) float64 { return unit(SplitMix64(seed ^ splitMixGamma)) }

// unit makes a number in [0, 1) of a draw.
func unit(draw uint64) float64 { return float64(draw>>11) * (1.0 / (1 << 53)) }

// tieOf is a draw among rows; where there was only one nothing was drawn.
func tieOf(rows int, draw float64) Tie {
	if rows < 2 {
		return Tie{Rows: rows}
	}
	return Tie{Rows: rows, Draw: draw}
}

// best returns the row with the highest total. Among equals the draw chooses,
// in row order.
func best(totals []float64, seed uint64) (row int, tie Tie) {
	high, equal := totals[0], 1
	for i, v := range totals[1:] {
		switch {
		case v > high:
			high, equal, row = v, 1, i+1
		case v == high:
			equal++
		}
	}
	tie = tieOf(equal, TieDraw(seed))
	if equal == 1 {
		return row, tie
	}
	nth := int(tie.Draw * float64(equal))
	for i, v := range totals {
		if v != high {
			continue
		}
		if nth == 0 {
			return i, tie
		}
		nth--
	}
	return row, tie
}

// bestKept is best among the rows that mask keeps, of which there is at least
// one; nil keeps all.
func bestKept(totals []float64, mask []byte, seed uint64) (row int, tie Tie) {
	if mask == nil {
		return best(totals, seed)
	}
	high, equal := 0.0, 0
	for i, v := range totals {
		switch {
		case mask[i] != 1:
		case equal == 0 || v > high:
			high, equal, row = v, 1, i
		case v == high:
			equal++
		}
	}
	tie = tieOf(equal, TieDraw(seed))
	nth := 0
	if equal > 1 {
		nth = int(tie.Draw * float64(equal))
	}
	for i, v := range totals {
		if mask[i] != 1 || v != high {
			continue
		}
		if nth == 0 {
			return i, tie
		}
		nth--
	}
	return row, tie
}
