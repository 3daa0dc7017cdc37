package core_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/core/reserve"
	"github.com/routerd/routerd/fleet"
)

// bindsFor lets a session live so long after its last request.
func bindsFor(ttl time.Duration) func(*core.Config) {
	return func(c *core.Config) { c.Affinity.TTL = ttl }
}

// Fifty first requests of one session at the same moment: one decision, one
// binding, one worker, and nobody waits longer than that one decision takes.
func TestA2_SimultaneousFirstRequestsNeedOneDecision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const deciding = 20 * time.Millisecond
		calls := 0
		slow := &stage{score: func(context.Context, *policy.Table, []float64) error {
			calls++
			<-time.After(deciding)
			return nil
		}}
		w := newWorld(t, use("module:slow"), stages{slow}, bindsFor(time.Minute))
		w.join(t, workers("m1", 4)...)
		began := time.Now()
		all := w.selectAll(t.Context(), numbered(50, func(i int) *core.Request { return sessionRequest(fmt.Sprint(i), "new") })...)
		<-time.After(time.Second)
		served := map[string]int{}
		for _, o := range ended(all) {
			if o.err != nil {
				t.Fatal(o.err)
			}
			served[o.sel.Name]++
			if d := o.at.Sub(began); d > deciding {
				t.Errorf("one waited %s; want at most %s", d, deciding)
			}
		}
		st := w.stats(model("m1")).Sessions
		if len(served) != 1 || calls != 1 || st.Bound != 1 || st.Leases != 50 {
			t.Errorf("served by %v after %d decisions, %+v; want one worker, one decision, one binding with 50 leases", served, calls, st)
		}
	})
}

// A full table serves what it cannot bind, pushes nobody out and binds again when
// a session has ended.
func TestA6_AFullTableOfLiveSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, use("builtin:kv-aware"), nil, bindsFor(time.Minute), func(c *core.Config) { c.Affinity.Entries = 1000 })
		w.join(t, workers("m1", 4)...)
		bound := map[string]fleet.Worker{}
		var first *core.Selection
		for i := range 1000 {
			sel, err := w.Select(t.Context(), sessionRequest("", fmt.Sprint("s", i)))
			if err != nil {
				t.Fatal(err)
			}
			if first == nil {
				first = sel
			}
			bound[fmt.Sprint("s", i)] = sel.Worker
		}
		over := func() {
			t.Helper()
			if _, err := w.Select(t.Context(), sessionRequest("", "one too many")); err != nil {
				t.Errorf("got %v; want it served", err)
			}
		}
		over()
		over()
		if _, ok := w.BoundTo(model("m1"), "one too many"); ok || w.stats(model("m1")).Sessions.Full != 2 {
			t.Errorf("bound %v, %+v; want it unpinned and counted twice", ok, w.stats(model("m1")).Sessions)
		}
		first.Reservation.Release(reserve.Outcome{Kind: reserve.Completed})
		<-time.After(time.Minute)
		over()
		if _, ok := w.BoundTo(model("m1"), "one too many"); !ok {
			t.Error("it is not bound though there is room")
		}
		for id, worker := range bound {
			if got, ok := w.BoundTo(model("m1"), id); id != "s0" && (!ok || got != worker) {
				t.Fatalf("%s is on %s, %v; want %s as before", id, got, ok, worker)
			}
		}
	})
}

func TestR5_TenThatNobodyFreesExpireInOneSweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, use("builtin:kv-aware"), nil, bindsFor(time.Minute), func(c *core.Config) { c.Expiry = 2 * time.Second })
		w.join(t, workers("m1", 2)...)
		for i := range 10 {
			if _, err := w.Select(t.Context(), sessionRequest(fmt.Sprint(i), fmt.Sprint("s", i))); err != nil {
				t.Fatal(err)
			}
		}
		<-time.After(2*time.Second - 1)
		if n := w.Tick(time.Now()); n != 0 || w.active() != 10 {
			t.Errorf("%d expired before their time, %d active", n, w.active())
		}
		<-time.After(1)
		n := w.Tick(time.Now())
		expired := 0
		for _, e := range w.heard.released {
			if e.Outcome.Kind == reserve.Expired {
				expired++
			}
		}
		if msg := w.leftOver(); n != 10 || expired != 10 || msg != "" {
			t.Errorf("%d expired, telemetry heard of %d; want 10; %s", n, expired, msg)
		}
	})
}

// A ten-minute stream whose owner watches over it keeps its reservation; one that
// nobody watches over goes with the next sweep after its time.
func TestAWatchedStreamOutlivesTheExpiryAndAnOrphanDoesNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, use("builtin:kv-aware"), nil)
		w.join(t, record("w1", "m1"))
		stream := bookRequest("stream", nil)
		stream.Leased = true
		for _, req := range []*core.Request{stream, bookRequest("orphan", nil)} {
			if _, err := w.Select(t.Context(), req); err != nil {
				t.Fatal(err)
			}
		}
		const sweep = 30 * time.Second
		gone := time.Duration(0)
		for at := sweep; at <= 10*time.Minute; at += sweep {
			<-time.After(sweep)
			if w.Tick(time.Now()) == 1 {
				gone = at
			}
		}
		if gone < 5*time.Minute || gone > 5*time.Minute+2*sweep {
			t.Errorf("the orphan went after %s; want 5 minutes and at most two sweeps", gone)
		}
		if err := w.PrefillComplete("stream"); err != nil || w.active() != 1 {
			t.Errorf("got %v with %d active; want the stream's reservation alive", err, w.active())
		}
	})
}

// What is out of range is refused at the start with the field's name and range.
func TestR7_ConfigsOutOfRangeNameFieldAndRange(t *testing.T) {
	const year = 31_536_000 * time.Second
	nanos := func(seconds float64) time.Duration { return time.Duration(min(seconds, 9.2e9) * 1e9) }
	for name, c := range map[string]struct {
		change func(*core.Config)
		field  string
	}{
		"TTL -1 s":                {bindsFor(-time.Second), "affinity.ttl"},
		"TTL 1 ns":                {bindsFor(1), "affinity.ttl"},
		"TTL 1e19 s":              {bindsFor(nanos(1e19)), "affinity.ttl"},
		"TTL a year and a second": {bindsFor(year + time.Second), "affinity.ttl"},
		"expiry 0":                {func(c *core.Config) { c.Expiry = 0 }, "expiry"},
		"expiry -1 s":             {func(c *core.Config) { c.Expiry = -time.Second }, "expiry"},
		"expiry 1e19 s":           {func(c *core.Config) { c.Expiry = nanos(1e19) }, "expiry"},
		"expiry a year and more":  {func(c *core.Config) { c.Expiry = year + time.Second }, "expiry"},
		"pending TTL 0":           {func(c *core.Config) { c.Pending.TTL = 0 }, "ttl"},
		"time-out of a class -1":  {func(c *core.Config) { c.Queue.Classes[0].Timeout = -1 }, "queue.classes[0].timeout"},
		"refresh -1":              {func(c *core.Config) { c.Queue.RefreshAfter = -1 }, "queue.refresh_after"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := core.DefaultConfig()
			c.change(&cfg)
			err := cfg.Validate()
			e := fieldError(err)
			if e == nil || e.Field != c.field || e.Allowed == "" {
				t.Errorf("got %v; want field %s with its range", err, c.field)
			}
		})
	}
	cfg := core.DefaultConfig()
	cfg.Affinity.TTL, cfg.Expiry = year, year
	if err := cfg.Validate(); err != nil {
		t.Errorf("a year: %v", err)
	}
	cfg.Affinity.TTL = 0
	if err := cfg.Validate(); err != nil {
		t.Errorf("no sessions: %v", err)
	}
}

// An ejected worker gets no request whatever the policy, its fallback, its picker,
// a session or a pin say.
func TestM10_AnEjectedWorkerGetsNothing(t *testing.T) {
	g := &gate{}
	specs := map[string]string{
		"prefers it":     `{"scorers":[{"use":"module:w1"}]}`,
		"fallback":       `{"scorers":[{"use":"module:trap"}],"fallback":"builtin:least-load"}`,
		"temperature":    `{"scorers":[{"use":"module:w1"}],"picker":{"use":"builtin:softmax","config":{"temperature":1000}}}`,
		"picks nowhere":  `{"scorers":[{"use":"module:w1"}],"picker":{"use":"module:astray"}}`,
		"filters others": `{"filters":[{"use":"module:others"}],"scorers":[{"use":"module:w1"}]}`,
	}
	for name, text := range specs {
		t.Run(name, func(t *testing.T) {
			spec, err := policy.ParseSpec([]byte(text))
			if err != nil {
				t.Fatal(err)
			}
			src := oddities(g)
			src["module:others"] = dropping("w2")
			w := newWorld(t, spec, src)
			w.join(t, workers("m1", 2)...)
			req := sessionRequest("", "s")
			req.Exclude = []fleet.Worker{{ID: fleet.IDFromName("w2")}}
			sel, err := w.Select(t.Context(), req)
			if err != nil || sel.Name != "w1" {
				t.Fatalf("got %v, %v; want the session on w1", sel, err)
			}
			sel.Reservation.Release(reserve.Outcome{Kind: reserve.Completed})
			if err := w.SetLifecycle(fleet.IDFromName("w1"), core.Ejected, nil); err != nil {
				t.Fatal(err)
			}
			for i := range 100 {
				req := sessionRequest("", []string{"s", "", "other"}[i%3])
				sel, err := w.Select(t.Context(), req)
				if err != nil || sel.Name != "w2" {
					t.Fatalf("got %v, %v; want w2", sel, err)
				}
				rec, _ := w.Decisions().Get(sel.DecisionID)
				for _, row := range rec.Rows {
					if row.Worker == fleet.IDFromName("w1") {
						t.Fatal("w1 is among the candidates")
					}
				}
			}
			pinned := bookRequest("", nil)
			pinned.Pin = &core.Pin{Name: "w1"}
			if _, err := w.Select(t.Context(), pinned); codeOf(err) != core.CodeWorkersEjected {
				t.Errorf("a pin: got %v; want workers_ejected", err)
			}
			if n := w.loads()["w1/0"].ActiveRequests; n != 0 {
				t.Errorf("%d requests at w1", n)
			}
		})
	}
}

// Four different reasons are four different codes, and all but the first tell when
// to try again.
func TestE4_FourReasonsFourCodes(t *testing.T) {
	w := newWorld(t, use("builtin:kv-aware"), nil, func(c *core.Config) { c.Overload.PrefillTokens = 10 })
	w.join(t, record("w1", "m1"), record("w2", "m2"), record("w3", "m3"))
	w.remove(t, "w1")
	if err := w.SetLifecycle(fleet.IDFromName("w2"), core.Ejected, nil); err != nil {
		t.Fatal(err)
	}
	busy := bookRequest("", prompt('A', 64))
	busy.Partition = model("m3")
	if _, err := w.Select(t.Context(), busy); err != nil {
		t.Fatal(err)
	}
	got := map[string]core.Code{}
	for _, name := range []string{"nope", "m1", "m2", "m3"} {
		_, err := w.Select(t.Context(), &core.Request{Kind: core.Book, Partition: model(name)})
		e := asError(err)
		if e == nil {
			t.Fatalf("%s: got %v", name, err)
		}
		if got[name] = e.Code; (e.RetryAfter >= time.Second) != (name != "nope") {
			t.Errorf("%s: try again after %s", name, e.RetryAfter)
		}
	}
	want := map[string]core.Code{"nope": core.CodeModelNotFound, "m1": core.CodeNoWorkers, "m2": core.CodeWorkersEjected, "m3": core.CodeOverloaded}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("codes (-want +got):\n%s", diff)
	}
}

func fieldError(err error) *fleet.FieldError {
	e, _ := errors.AsType[*fleet.FieldError](err)
	return e
}
