package kvcache

// BlockRange is a half-open range [Start, End) of block positions of a prompt.
type BlockRange struct{ Start, End uint32 }

// Beyond is the number of blocks of sorted, disjoint ranges at positions from n
// on.
func Beyond(ranges []BlockRange, n uint32) uint32 {
	var sum uint32
	for _, r := range ranges {
		if r.End > n {
			sum += r.End - max(r.Start, n)
		}
	}
	return sum
}
