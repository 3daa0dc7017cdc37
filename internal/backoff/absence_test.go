package backoff_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/routerd/routerd/internal/backoff"
)

func TestAServerIsAwayFromItsFirstFailureUntilItAnswersRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := backoff.NewAbsence(100*time.Millisecond, time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		var asked atomic.Int64
		var back atomic.Bool
		ended := make(chan error, 1)
		go func() { ended <- a.Run(ctx, func(context.Context) bool { asked.Add(1); return back.Load() }) }()
		before := a.Turn()
		if !a.Failed(before) || !a.Away() {
			t.Error("after the first failure it is not news, or not away")
		}
		if a.Failed(before) || a.Failed(a.Turn()) {
			t.Error("further failures are news")
		}
		<-time.After(10 * time.Second)
		if n := asked.Load(); n < 12 || n > 16 || !a.Away() {
			t.Errorf("asked %d times in 10 s, away %t; pauses double from 0.1 s to 1 s", n, a.Away())
		}
		back.Store(true)
		<-time.After(time.Second)
		if a.Away() {
			t.Error("it answered and is still away")
		}
		if a.Failed(before) || a.Away() {
			t.Error("a question from before it went away counts after it is back")
		}
		if a.Succeeded(before) {
			t.Error("an answer from before it went away is news after it is back")
		}
		if !a.Succeeded(a.Turn()) || a.Succeeded(a.Turn()) {
			t.Error("the first success is no news, or the second is")
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func TestAServerThatKeepsFailingIsNewsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := backoff.NewAbsence(100*time.Millisecond, time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { _ = a.Run(ctx, func(context.Context) bool { return true }) }()
		news := 0
		for range 5 {
			if a.Failed(a.Turn()) {
				news++
			}
			<-time.After(time.Second) // it answers Run, but no caller
		}
		if news != 1 {
			t.Errorf("told %d times", news)
		}
	})
}
