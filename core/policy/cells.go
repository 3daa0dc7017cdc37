package policy

import (
	"math/bits"
	"slices"
)

// Cells is one column of a table: a value a row, and which rows have a signal
// behind their value. A cell without one is missing: its signal is stale,
// invalid or unknown. It holds the column's registry default, so that whoever
// is content with that reads Values and never asks. Cells belong to their table
// and to its owner.
//
// What is missing is kept by the column as long as all its rows are alike; only
// where they are not there is a bit a row.
type Cells struct {
	values  []float64
	unless  float64 // the registry default
	state   cellState
	missing []uint64 // a bit a row; of use only where mixed
}

type cellState uint8

const (
	unknown cellState = iota // every cell is missing
	known                    // none is
	mixed                    // those in the bitmap are
)

func (c *Cells) reset(n int, unless float64) {
	c.values = slices.Grow(c.values[:0], n)[:n]
	for i := range c.values {
		c.values[i] = unless
	}
	c.unless, c.state = unless, unknown
}

// Values is the column, the registry default where a cell is missing. It is for
// reading: what is written to it is not known to have a signal.
func (c *Cells) Values() []float64 { return c.values }

// Fill returns the column for the writer of its signals. From now on no cell is
// missing. Of nil cells, a column that the table does not hold, it is nil.
func (c *Cells) Fill() []float64 {
	if c == nil {
		return nil
	}
	c.state = known
	return c.values
}

// Miss makes one cell of a filled column missing again.
func (c *Cells) Miss(row int) {
	c.values[row] = c.unless
	switch c.state {
	case unknown:
		return
	case known:
		words := (len(c.values) + 63) / 64
		c.missing = slices.Grow(c.missing[:0], words)[:words]
		clear(c.missing)
		c.state = mixed
	case mixed:
	}
	c.missing[row/64] |= 1 << (row % 64)
}

// Missing tells whether the row has no signal.
func (c *Cells) Missing(row int) bool {
	if c.state == mixed {
		return c.missing[row/64]>>(row%64)&1 == 1
	}
	return c.state == unknown
}

// Copy writes the column to dst, which has at least a row for each of its own,
// with missing in the place of the registry default.
func (c *Cells) Copy(dst []float64, missing float64) {
	dst = dst[:len(c.values)]
	if c.state == unknown {
		for i := range dst {
			dst[i] = missing
		}
		return
	}
	copy(dst, c.values)
	if c.state == known {
		return
	}
	for at, word := range c.missing {
		for ; word != 0; word &= word - 1 {
			dst[at*64+bits.TrailingZeros64(word)] = missing
		}
	}
}

// eachMissing calls f for each row without a signal.
func (c *Cells) eachMissing(f func(row int)) {
	switch c.state {
	case known:
	case unknown:
		for row := range c.values {
			f(row)
		}
	case mixed:
		for at, word := range c.missing {
			for ; word != 0; word &= word - 1 {
				f(at*64 + bits.TrailingZeros64(word))
			}
		}
	}
}
