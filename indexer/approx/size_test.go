//go:build !race

package approx_test

// How often the tests that do it the most record.
const (
	records = 1_000_000
	inserts = 200_000
)
