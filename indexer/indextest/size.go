//go:build !race

package indextest

// Sizes of the random runs.
const (
	seeds = 200
	steps = 500
)
