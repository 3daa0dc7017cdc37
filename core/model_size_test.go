//go:build !soak

package core_test

// Sizes of the model checker. The seed is fixed, so that a change is judged by the
// same sequences as the one before; 0 draws one.
const (
	modelSteps     = 40 // at most, of a sequence
	modelSequences = 2000
	modelSeed      = 1
	togetherSteps  = 3000 // of each goroutine
)
