package policy

import (
	"context"
	"fmt"
	"slices"

	"github.com/routerd/routerd/plugins/abi"
)

type filterStage struct {
	use     string
	filter  Filter
	onEmpty string
	onError string
}

// filter narrows the table's mask by one filter. The mask stays nil as long as
// no filter has dropped a row.
func (p *Pipeline) filter(ctx context.Context, i int, t *Table, d *Decision) error {
	st := &p.filters[i]
	keep, verdict, err := st.call(ctx, t, d)
	if err != nil {
		_, err = d.failed(ctx, st.use, st.onError, err)
		return err
	}
	if verdict == Abstained {
		d.Abstained++
		return nil
	}
	kept, dropped := countVerdict(keep, t.mask)
	if kept == 0 {
		if st.onEmpty == onEmptyFail {
			d.mask(t, keep, int16(i)) // for the record
			return &EmptiedError{i, st.use}
		}
		d.Emptied++
		return nil
	}
	if dropped > 0 {
		d.mask(t, keep, int16(i))
	}
	return nil
}

// call runs one filter and makes sure that its verdict can be believed. keep is
// d's spare mask, 0 for every row that was dropped before.
func (st *filterStage) call(ctx context.Context, t *Table, d *Decision) (keep []byte, _ Verdict, err error) {
	r, err := d.begin(ctx, st.use)
	if err != nil {
		return nil, 0, err
	}
	keep = d.verdict(t)
	verdict, err := st.filter.Filter(ctx, t, keep, r)
	d.note(st.use, r)
	if err != nil || verdict == Abstained {
		return nil, verdict, err
	}
	return keep, verdict, checkMask(st.use, keep, t.mask, r.Fuel)
}

// verdict is a spare mask that says what the filters before have said.
func (d *Decision) verdict(t *Table) []byte {
	d.drop = slices.Grow(d.drop[:0], t.Len())[:t.Len()]
	if t.mask != nil {
		copy(d.drop, t.mask)
		return d.drop
	}
	for row := range d.drop {
		d.drop[row] = 1
	}
	return d.drop
}

// checkMask refuses a byte that is neither 0 nor 1, and clears what is said
// about rows that were dropped before.
func checkMask(use string, keep, before []byte, fuel uint64) error {
	for row, b := range keep {
		if len(before) > 0 && before[row] == 0 {
			keep[row] = 0
			continue
		}
		if b > 1 {
			return &Fault{
				Stage: use, Code: string(abi.EMask), Reason: "mask", Counts: true, Fuel: fuel,
				Detail: fmt.Sprintf("row %d of %d has mask byte %d; allowed: 0, 1", row, len(keep), b),
			}
		}
	}
	return nil
}

// countVerdict counts the rows that are kept, and those that are dropped by
// this verdict.
func countVerdict(keep, before []byte) (kept, dropped int) {
	for row, b := range keep {
		switch {
		case b == 1:
			kept++
		case len(before) == 0 || before[row] == 1:
			dropped++
		}
	}
	return kept, dropped
}

// mask makes keep, which is d's spare mask, the table's. by dropped what keep
// drops beyond the mask before.
func (d *Decision) mask(t *Table, keep []byte, by int16) {
	if t.mask == nil {
		d.MaskedBy = slices.Grow(d.MaskedBy[:0], len(keep))[:len(keep)]
		clear(d.MaskedBy)
	}
	for row, b := range keep {
		if b == 0 && t.Kept(row) {
			d.MaskedBy[row] = by
		}
	}
	d.keep, d.drop = keep, d.keep
	t.mask, d.Mask = d.keep, d.keep
}

// unmask keeps every row again.
func (d *Decision) unmask(t *Table) {
	t.mask = nil
	d.Mask, d.MaskedBy = nil, d.MaskedBy[:0]
}
