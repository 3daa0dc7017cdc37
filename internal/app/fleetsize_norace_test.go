//go:build !race

package app_test

import "time"

// reconcileWithin is how much CPU time a list of 5,000 workers may take.
const reconcileWithin = time.Second
