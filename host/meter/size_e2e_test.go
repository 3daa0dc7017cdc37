//go:build e2e && !soak

package meter_test

const (
	smithModules   = 300
	chargedModules = 1500
)
