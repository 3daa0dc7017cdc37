//go:build !e2e

package host_test

// Sizes of the tests of rollouts; larger ones run under the tags e2e and soak.
const (
	// killStride is how many steps apart the crash test kills; not a divisor of
	// the steps of one write.
	killStride = 7
	reloads    = 20 // of a module of 300 KiB
	// shadowCost is what a shadow may add to a request: ten times the budget.
	shadowCost   = 0.5
	shadowRounds = 100
)
