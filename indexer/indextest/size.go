//go:build !race && !indexcheck

package indextest

// Sizes of the random runs.
const (
	seeds = 200
	steps = 500
)
