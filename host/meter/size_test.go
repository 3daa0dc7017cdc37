//go:build !e2e && !soak

package meter_test

// Sizes of the runs over the generator's modules; larger ones are under the tags e2e and soak.
const (
	smithModules   = 100 // are run in all forms
	chargedModules = 500 // are held against the second decoder
)
