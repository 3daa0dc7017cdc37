// Package scorertest runs a scorer natively, on a frame in ordinary memory laid
// out as the host does it. It is for the unit tests of plugins: no Wasm, no
// host, and every access out of range panics.
//
//	batch := scorertest.Batch{
//		Columns: map[string][]float64{"load.active_requests": {3, 1, 2}},
//	}
//	scores, err := scorertest.Run(plugin(), batch)
package scorertest
