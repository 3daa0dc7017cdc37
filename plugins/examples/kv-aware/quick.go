package main

import (
	"math"

	"github.com/routerd/routerd/plugins/sdk/go/scorer"
)

// The quick form of the formula is for what Go makes of a loop in a guest: every
// jump goes through one table and takes all live variables through memory, so
// there are four rows to a jump and no comparisons; and a loop that holds few
// variables is cheap, so decay has one of its own.

// weigh writes c × decay of each row where its score will be.
//
//go:noinline
func weigh(b *scorer.Batch) {
	var (
		n         = b.Len()
		waiting   = b.Column(colPrefillTokens)
		out       = b.Scores()
		blockSize = b.Field(fieldBlockSize)
		c, k      = b.Field(fieldCredit), b.Field(fieldDecay)
		odd       = 0.0
		i         = 0
	)
	if k == 0 && blockSize >= 1 {
		// Where no difference is so great that it is not finite, decay is
		// exactly 1.
		for ; i < n-3; i += 4 {
			odd += great(waiting.At(i)) + great(waiting.At(i+1)) + great(waiting.At(i+2)) + great(waiting.At(i+3))
			out.Set(i, c)
			out.Set(i+1, c)
			out.Set(i+2, c)
			out.Set(i+3, c)
		}
		for ; i < n; i++ {
			odd += great(waiting.At(i))
			out.Set(i, c)
		}
		if odd == 0 {
			return
		}
		i = 0
	}
	blocks, least := scorer.Max(b.Field(fieldBlocks), 1), least(waiting, b.Mask(), n)
	// A difference of a kept row to the least is NaN or not below 0: no maximum is
	// needed.
	weight := func(i int) float64 {
		return float64(c * (1 / (1 + float64(k*((waiting.At(i)-least)/blockSize/blocks)))))
	}
	for ; i < n-3; i += 4 {
		w0, w1, w2, w3 := weight(i), weight(i+1), weight(i+2), weight(i+3)
		out.Set(i, w0)
		out.Set(i+1, w1)
		out.Set(i+2, w2)
		out.Set(i+3, w3)
	}
	for ; i < n; i++ {
		out.Set(i, weight(i))
	}
}

// quick turns the weights into scores. It is false where a score is not finite:
// then the formula may have another one. A finite score is the formula's: the
// maxima differ only for NaN, infinities and numbers near them.
//
//go:noinline
func quick(b *scorer.Batch) bool {
	var (
		n         = b.Len()
		device    = b.Column(colDevice)
		host      = b.Column(colHost)
		disk      = b.Column(colDisk)
		shared    = b.Column(colShared)
		prefill   = b.Column(colPotentialPrefillTokens)
		decode    = b.Column(colPotentialDecodeBlocks)
		active    = b.Column(colActiveRequests)
		prefer    = b.Column(colPreference)
		out       = b.Scores()
		blockSize = b.Field(fieldBlockSize)
		s         = b.Field(fieldPrefillScale)
		w         = b.Field(fieldActiveWeight)
		h         = b.Field(fieldHostWeight)
		d         = b.Field(fieldDiskWeight)
		m         = b.Field(fieldSharedWeight)
		odd       = 0.0 // stays 0 while all scores are finite
		i         = 0
	)
	credit := func(i int) float64 {
		return float64(out.At(i)*device.At(i)) + float64(h*host.At(i)) + float64(d*disk.At(i)) + float64(m*shared.At(i))
	}
	rate := func(i int, credit float64) float64 {
		pre := prefill.At(i)/blockSize - credit
		pre = (pre + math.Abs(pre)) * 0.5 // the greater of it and 0
		cost := float64(s*pre) + decode.At(i) + float64(w*active.At(i))
		return -float64(cost * prefer.At(i))
	}
	for ; i < n-3; i += 4 {
		s0, s1, s2, s3 := rate(i, credit(i)), rate(i+1, credit(i+1)), rate(i+2, credit(i+2)), rate(i+3, credit(i+3))
		out.Set(i, s0)
		out.Set(i+1, s1)
		out.Set(i+2, s2)
		out.Set(i+3, s3)
		odd += (s0 - s0) + (s1 - s1) + (s2 - s2) + (s3 - s3)
	}
	for ; i < n; i++ {
		s0 := rate(i, credit(i))
		out.Set(i, s0)
		odd += s0 - s0
	}
	return odd == 0
}

// least is the smallest value of a column among the rows that are kept.
//
//go:noinline
func least(c scorer.Column, m scorer.Mask, n int) float64 {
	i := 0
	for i < n-1 && !m.Kept(i) {
		i++
	}
	v := c.At(i)
	for ; i < n-3; i += 4 {
		p, q, r, s := c.At(i), c.At(i+1), c.At(i+2), c.At(i+3)
		if bit(p < v)|bit(q < v)|bit(r < v)|bit(s < v) != 0 {
			v = lower(p, m.Kept(i), v)
			v = lower(q, m.Kept(i+1), v)
			v = lower(r, m.Kept(i+2), v)
			v = lower(s, m.Kept(i+3), v)
		}
	}
	for ; i < n; i++ {
		v = lower(c.At(i), m.Kept(i), v)
	}
	return v
}

// lower is the smaller of v and a value that counts.
func lower(value float64, counts bool, v float64) float64 {
	if counts {
		v = scorer.Min(value, v)
	}
	return v
}

// bit is 1 for true. The compiler makes no jump of it.
func bit(b bool) (n int) {
	if b {
		n = 1
	}
	return n
}

// great is 0, or NaN for NaN and what is 2^964 or more from 0.
func great(v float64) float64 {
	v = float64(v * (1 << 60))
	return v - v
}
