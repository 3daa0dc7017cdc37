//go:build !e2e

package host_test

// Sizes of the run over hostile modules; larger ones run under the tags e2e and soak.
const (
	hostileModules = 60
	// hostilePatience is by how much a stated time may be exceeded on a crowded machine.
	hostilePatience = 10
)
