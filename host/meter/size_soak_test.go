//go:build soak

package meter_test

const (
	smithModules   = 10_000
	chargedModules = 5000
)
