package health

import (
	"fmt"
	"time"

	"github.com/routerd/routerd/fleet"
)

// machine is what is known of one worker's health. It is pure: it is told what
// happened and when, and rules out nobody by itself.
type machine struct {
	since  time.Time // when the worker was first seen
	joined bool      // it has answered once

	// What probes said.
	failed, succeeded int // in a row
	last              string
	down              bool

	// What requests said. strikes are the times of the failures in a row, the oldest
	// first, at most as many as it takes to eject.
	strikes []time.Time
	trial   bool // it has returned unproven: one failure ejects

	// The ejection by requests.
	ejected  string // the reason; empty for none
	until    time.Time
	wait     time.Duration // how long it is, or the last one was
	returned time.Time     // when the last one ended, or the breaker was open last

	breaker string // why its breaker is open; empty while it is not
}

// state is where a machine stands.
type state uint8

const (
	fit      state = iota
	starting       // it has never answered
	silent         // it has never answered, for too long
	unfit          // it is to be out
)

// verdict is a state and why.
type verdict struct {
	state  state
	reason string
}

// probe notes the result of a probe.
func (m *machine) probe(r *Config, now time.Time, a answer) {
	if a.result != resultSuccess {
		m.succeeded = 0
		m.failed++
		m.last = a.reason(r)
		m.down = m.down || m.joined && m.failed >= r.Failures
		return
	}
	m.failed = 0
	m.succeeded++
	m.joined = true
	if m.succeeded >= r.Successes {
		m.down = false
	}
	if m.ejected != "" && !now.Before(m.until) {
		m.release(now)
	}
}

// passive notes how a request went. What comes of requests that were under way
// when the worker was taken out changes nothing.
func (m *machine) passive(r *Config, now time.Time, o fleet.Outcome) {
	switch {
	case o == fleet.Success:
		m.strikes, m.trial = m.strikes[:0], false
		return
	case o == fleet.NoOutcome || !m.joined || m.down || m.ejected != "" || m.breaker != "" || r.Passive.Failures == 0:
		return
	case m.trial:
		m.eject(r, now, wordOutlier+": 1 failure after its return")
		return
	}
	if len(m.strikes) >= r.Passive.Failures {
		m.strikes = append(m.strikes[:0], m.strikes[len(m.strikes)-r.Passive.Failures+1:]...)
	}
	m.strikes = append(m.strikes, now)
	if len(m.strikes) == r.Passive.Failures && now.Sub(m.strikes[0]) <= r.Passive.Window {
		m.eject(r, now, fmt.Sprintf("%s: %d failures in a row", wordOutlier, r.Passive.Failures))
	}
}

// setBreaker notes that the worker's breaker has opened, or is open no more: the worker
// is out for that long, whatever else is known of it. What its requests said before
// counts no more then.
func (m *machine) setBreaker(now time.Time, open bool, reason string) {
	switch {
	case open:
		m.breaker = worded(wordBreaker, reason)
	case m.breaker != "":
		m.breaker, m.strikes, m.trial, m.returned = "", m.strikes[:0], false, now
	}
}

// tick ends an ejection whose time is over where no probe will.
func (m *machine) tick(r *Config, now time.Time) {
	if !r.asks() && m.ejected != "" && !now.Before(m.until) {
		m.release(now)
		m.trial = true
	}
}

// suspect tells whether a request's success would change anything.
func (m *machine) suspect() bool { return len(m.strikes) > 0 || m.trial }

// eject begins an ejection.
func (m *machine) eject(r *Config, now time.Time, reason string) {
	m.strikes, m.trial = m.strikes[:0], false
	if m.ejected == "" {
		m.rest(r, now)
	}
	m.wait = min(max(2*m.wait, r.BaseEjection), r.MaxEjection)
	m.ejected, m.until = reason, now.Add(m.wait)
}

// rest halves the time of the last ejection for each such time that the worker has
// been well since.
func (m *machine) rest(r *Config, now time.Time) {
	for well := now.Sub(m.returned); m.wait > 0 && well >= m.wait; {
		well -= m.wait
		if m.wait /= 2; m.wait < r.BaseEjection {
			m.wait = 0
		}
	}
}

func (m *machine) release(now time.Time) {
	m.ejected, m.until, m.returned = "", time.Time{}, now
}

// trust makes the worker one that is not probed.
func (m *machine) trust() { m.joined, m.down, m.failed, m.succeeded = true, false, 0, 0 }

// verdict is where the worker stands.
func (m *machine) verdict(r *Config, now time.Time) verdict {
	switch {
	case !m.known():
		return verdict{starting, wordStarting + ": not asked yet"}
	case !m.joined && now.Sub(m.since) >= r.Grace:
		return verdict{silent, worded(m.last, "never answered within "+short(r.Grace))}
	case !m.joined:
		return verdict{starting, wordStarting + ": " + m.last}
	case m.breaker != "":
		return verdict{unfit, m.breaker}
	case m.down:
		return verdict{unfit, m.last}
	case m.ejected != "":
		return verdict{unfit, m.ejected}
	}
	return verdict{}
}

// known tells whether any probe has had a result.
func (m *machine) known() bool { return m.joined || m.last != "" }
