package app_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/routerd/routerd/internal/config"
	"github.com/routerd/routerd/internal/testkit"
)

// Who waited in vain is counted by class and code, and one who hung up is no answer.
func TestWhoWaitedInVainIsCountedByClassAndCode(t *testing.T) {
	r, p := waitingRouter(t, busyAt(1, time.Minute), func(c *config.Config) {
		quick := c.Queue.Classes["default"]
		quick.Timeout, quick.Limits.Requests = config.Duration(20*time.Millisecond), 1
		c.Queue.Classes["quick"] = quick
		quick.Limits.Requests = 0
		c.Queue.Classes["none"] = quick
	})
	send(t, r.App, "first", "", 1)
	p.next(t)
	hangUp := send(t, r.App, "hangs-up", "", 1)
	r.untilWaiting(t, 1)
	hangUp()
	if got := r.probe(t, "X-Routerd-Class", "quick"); got.status != http.StatusTooManyRequests || got.Error.Param != "queue_timeout" ||
		got.Error.Message != `every worker is busy: no place within 20ms, the time-out of class "quick"` {
		t.Errorf("got %+v, want a time-out that says whose", got)
	}
	if got := r.probe(t, "X-Routerd-Class", "none"); got.status != http.StatusTooManyRequests || got.Error.Param != "queue_full" {
		t.Errorf("got %+v, want a full queue", got)
	}
	r.untilWaiting(t, 0)
	for series, want := range map[string]float64{
		`routerd_queue_refused_total{class="default",code="cancelled",group="default",model="m"}`:   1,
		`routerd_queue_refused_total{class="quick",code="queue_timeout",group="default",model="m"}`: 1,
		`routerd_queue_refused_total{class="none",code="queue_full",group="default",model="m"}`:     1,
		`routerd_queue_wait_seconds_count{class="quick",group="default",model="m"}`:                 1,
		`routerd_queue_wait_seconds_count{class="default",group="default",model="m"}`:               1,
	} {
		testkit.Until(t, series, func() bool {
			_, text := r.call(t, http.MethodGet, "/metrics", r.Token(), nil)
			return strings.Contains(string(text), fmt.Sprintf("\n%s %v\n", series, want))
		})
	}
	if n := metric(t, r, `routerd_selection_decisions_total{by="",code="cancelled",kind="book",policy="",surface="frontend"}`); n != 1 {
		t.Errorf("%v decisions that were cancelled, want 1", n)
	}
	_, text := r.call(t, http.MethodGet, "/metrics", r.Token(), nil)
	if strings.Contains(string(text), `routerd_selection_decisions_total{by="",code=""`) {
		t.Error("a request that hung up counts as an answer")
	}
}

// What keeps requests from a worker stands beside it, in both views.
func TestAWorkersReasonsSayWhatKeepsRequestsFromIt(t *testing.T) {
	r, p := waitingRouter(t, busyAt(1, time.Minute), func(c *config.Config) { c.Queue.Overload.PrefillTokens = 1 })
	send(t, r.App, "first", "", 64)
	p.next(t)
	type reasons struct{ Reasons []string }
	got := show[struct{ Workers []reasons }](t, r, "/v1/workers").Workers[0].Reasons
	one := show[reasons](t, r, "/v1/workers/w1").Reasons
	ranks := show[struct{ Partitions []struct{ Ranks []reasons } }](t, r, "/v1/partitions").Partitions[0].Ranks[0].Reasons
	for name, list := range map[string][]string{"list": got, "worker": one, "rank": ranks} {
		if !slices.Contains(list, "busy: for default") {
			t.Errorf("%s: reasons are %q, want that it is busy", name, list)
		}
		if !slices.ContainsFunc(list, func(s string) bool {
			return strings.HasPrefix(s, "overloaded: ") && strings.HasSuffix(s, "at most 1 (queue.overload.prefill_tokens)")
		}) {
			t.Errorf("%s: reasons are %q, want that it is overloaded, and by which bound", name, list)
		}
	}
}
