package core

import (
	"sync/atomic"
	"time"
)

// sampleBurst is for how long decisions that come faster than the rate are all
// taken, from rest.
const sampleBurst = 5 * time.Second

// sampler takes so many a second over a long time. Safe for concurrent use.
type sampler struct {
	began    time.Time
	interval time.Duration // between two at the rate
	next     atomic.Int64  // since began: when one at the rate would be due
}

func newSampler(rate int) sampler {
	return sampler{began: time.Now(), interval: time.Second / time.Duration(max(rate, 1))}
}

// take tells whether to take one more at a moment.
func (s *sampler) take(now time.Time) bool {
	at := int64(now.Sub(s.began))
	for {
		due := s.next.Load()
		if due-at > int64(sampleBurst) {
			return false
		}
		if s.next.CompareAndSwap(due, max(due, at)+int64(s.interval)) {
			return true
		}
	}
}
