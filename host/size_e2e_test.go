//go:build e2e

package host_test

const swaps = 1000
