package host

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/plugins/abi"
)

// numKinds is how many kinds of calls there are.
const numKinds = 5

// kindNumber numbers the kinds, in the order of abi.Kinds.
func kindNumber(k abi.Kind) int {
	switch k {
	case abi.KindFilter:
		return 1
	case abi.KindLoraScorer:
		return 2
	case abi.KindPicker:
		return 3
	case abi.KindPolicy:
		return 4
	case abi.KindScorer:
	}
	return 0
}

// result is what a call gives. A kind leaves nil what it has none of; slices
// have a value for each row.
type result struct {
	scores []float64
	// keep is the mask: of the rows that are in so far on the way in, of those
	// that stay on the way out.
	keep    []byte
	choice  policy.Choice
	cleaned int // rows whose score was no opinion and became the median
}

// take copies the result of a call that returned OK out of the frame and checks
// it.
func (in *instance) take(c *call, out *result) *policy.Fault {
	kind, mask := c.kind, c.mask
	if kind == abi.KindFilter || kind == abi.KindPolicy {
		if fault := in.takeMask(out.keep); fault != nil {
			return fault
		}
		mask = out.keep
	}
	if kind != abi.KindFilter && kind != abi.KindPicker {
		if fault := in.takeScores(mask, out); fault != nil {
			return fault
		}
	}
	if kind == abi.KindPicker || kind == abi.KindPolicy {
		return in.takePick(mask, c.table.Len(), out)
	}
	return nil
}

func (in *instance) frameMask(n int) []byte { return in.bytes[in.shape.layout.Mask:][:n] }

// takeMask drops the rows that the guest dropped. Bytes of rows that were out
// before are not looked at: nothing brings a row back.
func (in *instance) takeMask(keep []byte) *policy.Fault {
	for row, b := range in.frameMask(len(keep)) {
		if keep[row] != 1 || b == 1 {
			continue
		}
		if b != 0 {
			return &policy.Fault{
				Code: string(abi.EMask), Reason: reasonMask, Counts: true,
				Detail: fmt.Sprintf("row %d has mask byte %d; allowed: 0 and 1", row, b),
			}
		}
		keep[row] = 0
	}
	return nil
}

// takeScores copies the scores of kept rows and cleans them; the others are 0.
func (in *instance) takeScores(mask []byte, out *result) *policy.Fault {
	scores, bounds := out.scores, in.module.manifest.ScoreRange
	if len(mask) == 0 && bounds == nil && takeFinite(scores, in.f64[in.shape.layout.Scores/8:]) {
		return nil
	}
	copy(scores, in.f64[in.shape.layout.Scores/8:])
	odd := false
	for row, v := range scores {
		if !keeps(mask, row) {
			scores[row] = 0
			continue
		}
		if v-v != 0 { // NaN or an infinity
			if math.Float64bits(v) == abi.UnwrittenBits {
				return &policy.Fault{
					Code: string(abi.EUnwritten), Reason: reasonUnwritten, Counts: true,
					Detail: fmt.Sprintf("row %d of %d was not written", row, len(scores)),
				}
			}
			odd = true
			continue
		}
		if bounds != nil && (v < bounds.Min || v > bounds.Max) {
			return &policy.Fault{
				Code: string(abi.ERange), Reason: reasonRange, Counts: true,
				Detail: fmt.Sprintf("row %d has score %v; allowed: %v to %v", row, v, bounds.Min, bounds.Max),
			}
		}
		scores[row] = v + 0 // −0 becomes 0
	}
	if !odd {
		return nil
	}
	var ok bool
	if in.spare, out.cleaned, ok = policy.CleanKept(scores, mask, in.spare); ok {
		return nil
	}
	return &policy.Fault{
		Code: string(abi.ENaN), Reason: reasonNaN, Counts: true,
		Detail: fmt.Sprintf("%d of %d kept rows have no finite score", out.cleaned, kept(mask, len(scores))),
	}
}

// takeFinite copies scores, −0 as 0; false when one of them is not finite.
func takeFinite(to, from []float64) bool {
	odd := 0.0
	for row, v := range from[:len(to)] {
		to[row] = v + 0
		odd += v - v // NaN from a NaN and from an infinity, else 0
	}
	return odd == 0
}

// takePick reads which row was chosen, or that the host is to draw.
func (in *instance) takePick(mask []byte, n int, out *result) *policy.Fault {
	refused := func(what string) *policy.Fault {
		return &policy.Fault{Code: string(abi.EPick), Reason: reasonPick, Detail: what, Counts: true}
	}
	out.choice = policy.Choice{Tie: policy.Tie{Rows: 1}}
	if in.outFlags()&abi.OutTieBreak != 0 {
		out.choice.HostDraws = true
		if kept(mask, n) == 0 {
			return refused("no row is kept")
		}
		return nil
	}
	pick := in.pick()
	switch {
	case pick == abi.PickNone:
		return refused("no row was picked")
	case uint64(pick) >= uint64(n):
		return refused(fmt.Sprintf("row %d was picked of %d", pick, n))
	case !keeps(mask, int(pick)):
		return refused(fmt.Sprintf("row %d was picked, which is masked", pick))
	}
	out.choice.Row = int(pick)
	return nil
}

func (in *instance) pick() uint32 { return binary.LittleEndian.Uint32(in.bytes[abi.OffPick:]) }

// keeps tells whether a mask keeps a row; one of nothing keeps all.
func keeps(mask []byte, row int) bool { return len(mask) == 0 || mask[row] == 1 }

// kept is how many of n rows a mask keeps.
func kept(mask []byte, n int) int {
	if mask == nil {
		return n
	}
	return bytes.Count(mask, []byte{1})
}
