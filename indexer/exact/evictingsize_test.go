//go:build !indexcheck

package exact_test

const (
	evictingCap    = 4 << 20 // bytes
	evictingRounds = 2000
)
