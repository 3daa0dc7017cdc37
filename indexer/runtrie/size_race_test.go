//go:build race

package runtrie_test

// Sizes of the tests under the race detector, which makes them ten times as long.
const (
	seeds  = 20
	rounds = 1000
)
