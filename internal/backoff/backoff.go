// Package backoff says how long to wait after failures in a row, and keeps callers from a
// server that is away. The pauses are pure but for the draw; an Absence starts no
// goroutine, its Run is one.
//
//	timer.Reset(backoff.Pause(500*time.Millisecond, 5*time.Second, failures))
package backoff

import (
	"math/rand/v2"
	"time"
)

// Doubled is first after one failure or none, doubled with each further one up to most.
// Where first is above most it is most; neither may be below 0.
func Doubled(first, most time.Duration, failures int) time.Duration {
	d := first
	for n := failures; n > 1 && d > 0 && d < most; n-- {
		if d > most/2 {
			return most
		}
		d *= 2
	}
	return min(d, most)
}

// Pause is Doubled less up to a fifth by chance, so that many who failed together do not
// try together.
func Pause(first, most time.Duration, failures int) time.Duration {
	d := Doubled(first, most, failures)
	return d - rand.N(d/5+1)
}
