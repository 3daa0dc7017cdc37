//go:build !e2e

package host_test

// Sizes of the long tests; the full ones run under the tag e2e.
const swaps = 100

// killStride is how many steps apart the crash test kills; not a divisor of the
// steps of one write.
const killStride = 7

// What a shadow may add to a request, and over how many rounds it is measured.
const (
	shadowCost   = 0.5
	shadowRounds = 100
)
