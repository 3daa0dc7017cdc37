//go:build e2e && !soak

package e2e_test

import "time"

// Sizes of the long tests; the full ones run under the tags e2e and soak.
const (
	swapRate   = 200 // requests a second
	swapRun    = 10 * time.Second
	swapEvery  = time.Second
	swapNormal = 5 * time.Second
	// calm is the least p99 that is taken for normal: a crowded machine stalls at any time.
	calm        = 25 * time.Millisecond
	streamRun   = 1500 * time.Millisecond
	outage      = 2 * time.Second
	slowRun     = 2 * time.Second
	u3Rounds    = 40
	randomRun   = 30 * time.Second
	flappingRun = 30 * time.Second
	crashes     = 4
	// manySwaps is a multiple of ten.
	manySwaps      = 100
	leakSlack      = 4 << 20 // of a memory that is small and young
	canaryRun      = 4 * time.Second
	rolloutCrashes = 10
	shadowRounds   = 11
	// traceRequests is how many requests of each trace are sent.
	traceRequests = 200
	// patience is by how much a stated time may be exceeded on a crowded machine.
	patience = 10
	// Endpoints of KV events that are disturbed: engines times ranks.
	chaosEngines, chaosRanks = 10, 10
	chaosRun                 = 8 * time.Second
	chaosEvery               = 20 * time.Millisecond
)
