package backoff

import (
	"context"
	"sync/atomic"
	"time"
)

// Absence is what the many callers of one server know of whether it is there. Each asks
// for the Turn before its question. After a failure the server is away: nobody asks it
// but Run, which finds out when it is back. It is safe for concurrent use.
type Absence struct {
	first, most time.Duration // pauses of Run

	// turns counts the changes between here (even) and away (odd), so that what was asked
	// before a change says nothing about the server after it.
	turns atomic.Uint64
	// failures counts how often in a row the server went away or was not back; a question
	// that succeeds makes it 0, but one of Run does not.
	failures atomic.Int64
	gone     chan struct{} // 1: wakes Run; full means it is awake already
}

// Turn is a time that the server was here, or away.
type Turn uint64

// Away tells which of both.
func (t Turn) Away() bool { return t%2 == 1 }

// NewAbsence makes an Absence of a server that is here. Run pauses for first before it
// asks, then for twice as long each time up to most, less up to a fifth by chance.
func NewAbsence(first, most time.Duration) *Absence {
	return &Absence{first: first, most: most, gone: make(chan struct{}, 1)}
}

// Turn is the present one.
func (a *Absence) Turn() Turn { return Turn(a.turns.Load()) }

// Away tells whether the server is away.
func (a *Absence) Away() bool { return a.Turn().Away() }

// Failed makes the server away after a question of that turn has failed. It changes
// nothing where the server has gone or come back since. news is true the first time since
// a question succeeded.
func (a *Absence) Failed(t Turn) (news bool) {
	if t.Away() || !a.turns.CompareAndSwap(uint64(t), uint64(t)+1) {
		return false
	}
	news = a.failures.Load() == 0
	a.gone <- struct{}{} // never waits: Run takes it before it ends this time away
	return news
}

// Succeeded hears that a question of that turn was answered, which says nothing where the
// server has gone or come back since. news is true the first time since one failed.
func (a *Absence) Succeeded(t Turn) (news bool) {
	return a.failures.Load() > 0 && a.Turn() == t && a.failures.Swap(0) > 0
}

// Run has answers find out whether a server that went away is back, until ctx ends, and
// then returns nil. It is to be called once; without it a server that went away stays so.
func (a *Absence) Run(ctx context.Context, answers func(context.Context) bool) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-a.gone:
		}
		if !a.waitFor(ctx, answers) {
			return nil
		}
		a.turns.Add(1)
	}
}

// waitFor returns true once the server has answered, false when ctx has ended.
func (a *Absence) waitFor(ctx context.Context, answers func(context.Context) bool) bool {
	timer := time.NewTimer(Pause(a.first, a.most, int(a.failures.Add(1))))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-timer.C:
		}
		if answers(ctx) {
			return true
		}
		timer.Reset(Pause(a.first, a.most, int(a.failures.Add(1))))
	}
}
