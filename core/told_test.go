package core_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/core/queue"
	"github.com/routerd/routerd/core/reserve"
)

var errHungUp = errors.New("the client has hung up")

// Of each selection that waited or failed telemetry hears the queue's class, of one
// whose caller went that it is no answer; and a record tells the wait apart from the
// decision.
func TestWhatWaitedIsToldWithItsClassAndItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, use("builtin:kv-aware"), nil, oneEach(1, func(c *queue.Class) { c.Limits.Requests, c.Timeout = 2, 10*time.Second }), func(c *core.Config) {
			chat := c.Queue.Classes[0]
			chat.Name = "chat"
			c.Queue.Classes = append(c.Queue.Classes, chat)
		})
		w.join(t, workers("m1", 1)...)
		of := func(id, class string) *core.Request {
			req := bookRequest(id, nil)
			req.Class = class
			return req
		}
		first, err := w.Select(t.Context(), of("first", "chat"))
		if err != nil {
			t.Fatal(err)
		}
		ctx, hangUp := context.WithCancelCause(t.Context())
		w.selectAll(ctx, of("hangs-up", "chat"))
		synctest.Wait()
		w.selectAll(t.Context(), of("waits", "nobody's"), of("times-out", "chat"))
		synctest.Wait()
		w.selectAll(t.Context(), of("full", "chat"))
		synctest.Wait()
		<-time.After(3 * time.Second)
		hangUp(errHungUp)
		synctest.Wait()
		first.Reservation.Release(reserve.Outcome{Kind: reserve.Completed})
		<-time.After(10 * time.Second)
		type told struct {
			Code   core.Code
			Class  string
			Waited time.Duration
		}
		var got []told
		w.heard.mu.Lock()
		for _, e := range w.heard.decided {
			got = append(got, told{e.Code, e.Class, e.Waited})
		}
		w.heard.mu.Unlock()
		want := []told{
			{}, // an answer at once
			{core.CodeQueueFull, "chat", 0},
			{core.CodeCancelled, "chat", 3 * time.Second},
			{"", "default", 3 * time.Second},
			{core.CodeQueueTimeout, "chat", 10 * time.Second},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("telemetry heard (-want +got)\n%s", diff)
		}
		records := w.Decisions().List(core.DecisionFilter{})
		if len(records) != 2 {
			t.Fatalf("%d records, want those of the two answers", len(records))
		}
		waited := records[0]
		if waited.Request.Class != "nobody's" || waited.WaitedMicros != 3e6 || waited.Micros != 0 {
			t.Errorf("the record has class %q, waited %d us, took %d us; want nobody's, 3000000 and 0 (the clock stands still)", waited.Request.Class, waited.WaitedMicros, waited.Micros)
		}
		if records[1].Request.Class != "chat" || records[1].WaitedMicros != 0 {
			t.Errorf("the record of who did not wait: %+v", records[1])
		}
	})
}
