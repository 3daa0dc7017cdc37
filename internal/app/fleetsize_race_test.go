//go:build race

package app_test

import "time"

// reconcileWithin is how much CPU time a list of 5,000 workers may take under the race
// detector, with which it takes some three times as much.
const reconcileWithin = 5 * time.Second
