//go:build e2e && soak

package host_test

const (
	killStride   = 1
	reloads      = 500
	shadowCost   = 0.05
	shadowRounds = 2000
)
