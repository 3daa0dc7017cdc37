//go:build indexcheck

package exact_test

// Each change is followed by a look at the whole index.
const (
	evictingCap    = 2 << 20 // bytes
	evictingRounds = 500
)
