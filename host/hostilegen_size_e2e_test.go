//go:build e2e && !soak

package host_test

// Sizes of the run over hostile modules; the full one runs under the tags e2e and soak.
const (
	hostileModules = 500
	// hostilePatience is by how much a stated time may be exceeded on a crowded machine.
	hostilePatience = 10
	// stallGroup is how many families share a measurement of pauses.
	stallGroup = 14
)
