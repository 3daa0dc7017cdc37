//go:build e2e && soak

package host_test

const allocatingCalls = 1_000_000
