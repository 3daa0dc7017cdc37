//go:build soak

package meter_test

const smithModules = 20_000
