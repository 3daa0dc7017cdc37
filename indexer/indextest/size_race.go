//go:build race

package indextest

// Sizes of the random runs under the race detector, which makes them ten times as long.
const (
	seeds = 30
	steps = 400
)
