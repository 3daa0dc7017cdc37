//go:build e2e && !soak

package host_test

const (
	killStride   = 1
	reloads      = 100
	shadowCost   = 0.5
	shadowRounds = 500
)
