//go:build e2e

package host_test

const swaps = 1000

const killStride = 1

const (
	shadowCost   = 0.05
	shadowRounds = 1000
)
