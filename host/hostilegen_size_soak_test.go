//go:build e2e && soak

package host_test

// Sizes of the run over hostile modules; times are asserted as they are stated.
const (
	hostileModules = 10_000
	// hostilePatience is by how much a stated time may be exceeded on a crowded machine.
	hostilePatience = 1
	// stallGroup is how many families share a measurement of pauses.
	stallGroup = 1
)
