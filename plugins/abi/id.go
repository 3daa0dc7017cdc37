package abi

import "github.com/routerd/routerd/plugins/abi/xxh3"

// ID is the number by which a guest knows a string: the upper 53 bits of
// XXH3-64 (seed 0) of its UTF-8 bytes, which a float64 holds exactly. It is the
// same on every host and in every SDK. 0 means missing: the host writes 0 where
// there is no string at all, and ID("") is not 0. One string in 2^53 has id 0
// and so looks missing.
func ID(s string) float64 { return float64(xxh3.Sum(s) >> 11) }
