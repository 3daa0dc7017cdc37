//go:build soak

package core_test

const (
	modelSteps     = 60 // at most, of a sequence
	modelSequences = 100_000
	modelSeed      = 0
	togetherSteps  = 100000 // of each goroutine
)
