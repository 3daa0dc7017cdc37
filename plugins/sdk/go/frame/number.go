package frame

import "github.com/routerd/routerd/plugins/abi/xxh3"

// Max is a > b ? a : b, the only maximum whose bits are the same in every
// language.
func Max(a, b float64) float64 {
	if a > b {
		return a
	}
	return b
}

// Min is a < b ? a : b; see Max.
func Min(a, b float64) float64 {
	if a < b {
		return a
	}
	return b
}

// ID is the number by which columns and request fields know a string; 0 there
// means missing. Compute ids once, not in the loop.
func ID(s string) float64 { return float64(xxh3.Sum(s) >> 11) }

// LeastMinor is the least ABI minor whose host knows all of names.
func LeastMinor(names []string) int32 {
	least := int32(0)
	for _, n := range names {
		least = max(least, since(n))
	}
	return least
}
