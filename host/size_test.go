//go:build !e2e

package host_test

// Sizes of the long tests; the full ones run under the tag e2e.
const swaps = 100
