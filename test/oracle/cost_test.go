//go:build oracle

package oracle_test

import (
	"math"
)

// row is what a service tells of one rank for one prompt: its load with the prompt
// on it, and what it holds of the prompt. The load has no tokens that it holds.
type row struct {
	key                rankKey
	tokens             int
	prefill, decode    float64
	device, host, disk int // blocks; host and disk beyond the faster tier
}

// weights are those of the default policy that a request may override.
type weights struct{ credit, prefill float64 }

var defaultWeights = weights{credit: 1, prefill: 1}

// cost is the default policy's formula, in blocks.
func (r row) cost(block int, w weights, preferred float64) float64 {
	size := float64(block)
	whole := r.prefill + r.cached(block)
	credit := w.credit*float64(r.device) + 0.75*float64(r.host) + 0.25*float64(r.disk)
	cost := w.prefill*math.Max(whole/size-credit, 0) + r.decode
	return cost * math.Exp(-math.Tanh(preferred))
}

// cached is how many tokens of the prompt are left out of its load on the rank.
func (r row) cached(block int) float64 {
	blocks := float64(r.device) + 0.75*float64(r.host) + 0.25*float64(r.disk)
	return math.Min(math.Round(blocks*float64(block)), float64(r.tokens))
}

// best are the keys of the rows of the least cost; those within the margin count
// as tied. preferred is the sum of the weights of the preferred taints that a
// worker has.
func best(rows []row, block int, w weights, preferred func(rankKey) float64, margin float64) []rankKey {
	least := math.Inf(1)
	costs := make([]float64, len(rows))
	for i, r := range rows {
		costs[i] = r.cost(block, w, preferred(r.key))
		least = math.Min(least, costs[i])
	}
	var keys []rankKey
	for i, r := range rows {
		if costs[i] <= least+margin {
			keys = append(keys, r.key)
		}
	}
	return keys
}
