package policy

import (
	"sync"
	"time"
)

// When a revision trips: so many faults within the window and a larger share of
// at least so many calls, or so many in a row.
const (
	tripFaults    = 5
	tripCalls     = 20
	tripShare     = 0.01
	tripInARow    = 3
	guardWindow   = 10 // seconds
	deadlineFuel  = 1_000_000
	reasonTimeout = "deadline"
)

// guard counts calls and faults of the last 10 s, in steps of one second.
type guard struct {
	mu      sync.Mutex // guards all below
	seconds [guardWindow]guardSecond
	inARow  int
	onTrial int // good calls that a revision on probation still owes
	tripped bool
	trips   uint64
}

type guardSecond struct {
	at            int64 // Unix second
	calls, faults uint32
}

// note counts one call of the pipeline; fault is nil for a good one. It reports
// whether this call tripped the revision.
func (g *guard) note(now time.Time, fault *Fault, off bool) (trippedNow bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := &g.seconds[int(now.Unix()%guardWindow)]
	if s.at != now.Unix() {
		*s = guardSecond{at: now.Unix()}
	}
	s.calls++
	if fault == nil {
		g.inARow = 0
		g.onTrial = max(g.onTrial-1, 0)
		return false
	}
	if !fault.Counts || off {
		return false
	}
	if fault.Reason == reasonTimeout {
		// A crowded machine misses deadlines too: only a guest that worked
		// hard counts, and never by the row.
		if fault.Fuel < deadlineFuel {
			return false
		}
	} else {
		g.inARow++
	}
	s.faults++
	if g.tripped || !(g.inARow >= tripInARow || g.onTrial > 0 || g.overRate(now)) {
		return false
	}
	g.tripped = true
	g.trips++
	return true
}

func (g *guard) overRate(now time.Time) bool {
	var calls, faults uint32
	for _, s := range g.seconds {
		if now.Unix()-s.at < guardWindow {
			calls += s.calls
			faults += s.faults
		}
	}
	return faults >= tripFaults && calls >= tripCalls && float64(faults) > tripShare*float64(calls)
}

func (g *guard) reset(probation bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.tripped, g.inARow, g.onTrial = false, 0, 0
	if probation {
		g.onTrial = tripCalls
	}
	g.seconds = [guardWindow]guardSecond{}
}
