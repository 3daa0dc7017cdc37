//go:build e2e && !soak

package host_test

const allocatingCalls = 5000
