//go:build race || indexcheck

package indextest

// Sizes of the random runs under the race detector or a check of all invariants, which make them ten times as long.
const (
	seeds = 30
	steps = 400
)
