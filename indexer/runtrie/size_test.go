//go:build !race

package runtrie_test

// Sizes of the tests.
const (
	seeds  = 200
	rounds = 6000
)
