//go:build e2e && soak

package e2e_test

import "time"

// Full sizes; times are asserted as they are stated.
const (
	swapRate                 = 500 // requests a second
	swapRun                  = 60 * time.Second
	swapEvery                = 2 * time.Second
	swapNormal               = 15 * time.Second
	calm                     = 0
	streamRun                = 5 * time.Second
	outage                   = 30 * time.Second
	slowRun                  = 10 * time.Second
	u3Rounds                 = 200
	randomRun                = 60 * time.Second
	flappingRun              = 5 * time.Minute
	crashes                  = 20
	manySwaps                = 1000
	leakSlack                = 0
	canaryRun                = 30 * time.Second
	shadowRounds             = 101
	rolloutCrashes           = 200
	traceRequests            = 1 << 30 // all
	patience                 = 1
	chaosEngines, chaosRanks = 20, 50
	chaosRun                 = time.Minute
	chaosEvery               = 5 * time.Millisecond
)
