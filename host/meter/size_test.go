//go:build !soak

package meter_test

// smithModules is how many modules of the generator are run; many more are under the tag soak.
const smithModules = 300
