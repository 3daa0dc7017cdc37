package main

import "github.com/routerd/routerd/plugins/sdk/go/scorer"

// Places of the columns.
const (
	colDevice = iota
	colHost
	colDisk
	colShared
	colPrefillTokens
	colPotentialPrefillTokens
	colPotentialDecodeBlocks
	colActiveRequests
	colPreference
)

func columns() []string {
	return []string{
		colDevice:                 "kv.overlap_device",
		colHost:                   "kv.overlap_host",
		colDisk:                   "kv.overlap_disk",
		colShared:                 "kv.overlap_shared",
		colPrefillTokens:          "load.prefill_tokens",
		colPotentialPrefillTokens: "load.potential_prefill_tokens",
		colPotentialDecodeBlocks:  "load.potential_decode_blocks",
		colActiveRequests:         "load.active_requests",
		colPreference:             "taint.preference",
	}
}

// Places of the request fields.
const (
	fieldBlocks = iota
	fieldBlockSize
	fieldPrefillScale
	fieldCredit
	fieldDecay
	fieldActiveWeight
	fieldHostWeight
	fieldDiskWeight
	fieldSharedWeight
)

func fields() []string {
	return []string{
		fieldBlocks:       "isl_blocks",
		fieldBlockSize:    "block_size",
		fieldPrefillScale: "config.prefill_load_scale",
		fieldCredit:       "config.overlap_credit",
		fieldDecay:        "config.credit_decay",
		fieldActiveWeight: "config.active_request_weight",
		fieldHostWeight:   "config.host_weight",
		fieldDiskWeight:   "config.disk_weight",
		fieldSharedWeight: "config.shared_weight",
	}
}

// score writes −cost × preference for every row. The order of operations, and
// where a product is rounded by itself, is part of the policy: it must give the
// same bits on every machine and in the native twin, for hostile numbers too.
// quick does so for ordinary numbers; where it may not have, exact does it again.
func score(b *scorer.Batch) error {
	weigh(b)
	if !quick(b) {
		exact(b)
	}
	return nil
}

// exact is the formula as README.md has it.
//
//go:noinline
func exact(b *scorer.Batch) {
	var (
		n         = b.Len()
		device    = b.Column(colDevice)
		host      = b.Column(colHost)
		disk      = b.Column(colDisk)
		shared    = b.Column(colShared)
		waiting   = b.Column(colPrefillTokens)
		prefill   = b.Column(colPotentialPrefillTokens)
		decode    = b.Column(colPotentialDecodeBlocks)
		active    = b.Column(colActiveRequests)
		prefer    = b.Column(colPreference)
		out       = b.Scores()
		blockSize = b.Field(fieldBlockSize)
		blocks    = scorer.Max(b.Field(fieldBlocks), 1)
		s         = b.Field(fieldPrefillScale)
		c         = b.Field(fieldCredit)
		k         = b.Field(fieldDecay)
		w         = b.Field(fieldActiveWeight)
		h         = b.Field(fieldHostWeight)
		d         = b.Field(fieldDiskWeight)
		m         = b.Field(fieldSharedWeight)
		leastWait = least(waiting, b.Mask(), n)
	)
	for i := range n {
		excess := scorer.Max(waiting.At(i)-leastWait, 0) / blockSize
		decay := 1 / (1 + float64(k*(excess/blocks)))
		credit := float64(float64(c*decay)*device.At(i)) + float64(h*host.At(i)) + float64(d*disk.At(i)) + float64(m*shared.At(i))
		pre := scorer.Max(prefill.At(i)/blockSize-credit, 0)
		cost := float64(s*pre) + decode.At(i) + float64(w*active.At(i))
		out.Set(i, -float64(cost*prefer.At(i)))
	}
}
