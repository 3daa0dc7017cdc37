//go:build race

package approx_test

// How often the tests that do it the most record, where each takes ten times as long or more.
const (
	records = 40_000
	inserts = 20_000
)
