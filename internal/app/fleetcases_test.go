package app_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/catalog"
	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/core/reserve"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/internal/app"
	"github.com/routerd/routerd/internal/testkit"
	"github.com/routerd/routerd/sim"
)

// ready counts the workers that are.
func ready(f *app.Fleet) (n int) {
	for _, v := range f.Reconciler.Workers() {
		if v.Lifecycle == core.Ready {
			n++
		}
	}
	return n
}

func TestM1_AnotherSpellingTouchesNeitherBookingsNorStream(t *testing.T) {
	e := engine(t, "e1", nil)
	f := fleetOf(t, true, nil)
	applied(t, f, behind(t, 1, e, nil))
	if _, err := book(t, f, "a", nil); err != nil {
		t.Fatal(err)
	}
	upserts, listens := f.Upserts.Load(), f.Listens.Load()
	applied(t, f, behind(t, 1, e, func(r *fleet.Record) { r.URL = strings.Replace(r.URL, "http", "HTTP", 1) + "/" }))
	if f.Upserts.Load() != upserts || f.Listens.Load() != listens || f.Unlistens.Load() != 0 || active(f)[fleet.Worker{ID: 1}] != 1 {
		t.Errorf("%d upserts, %d listens, %d ends, load %v; want none of them changed", f.Upserts.Load()-upserts, f.Listens.Load()-listens, f.Unlistens.Load(), active(f))
	}
	sel, err := book(t, f, "b", nil)
	if err != nil || sel.Endpoint != e.URL() {
		t.Errorf("got %v, %v; want the endpoint %s", sel, err, e.URL())
	}
	err = f.Reconciler.Apply(t.Context(), "api", []fleet.Record{behind(t, 2, e, nil)})
	if c, ok := errors.AsType[*catalog.ConflictError](err); !ok || c.Field != "url" {
		t.Errorf("a second worker there: %v, want a conflict about its url", err)
	}
}

// over6 is a way to an address of this machine through its IPv6 loopback.
func over6(t *testing.T, address string) string {
	t.Helper()
	ln, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Fatalf("this machine has no IPv6 loopback, which the test needs: %v", err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			here, err := ln.Accept()
			if err != nil {
				return
			}
			there, err := net.Dial("tcp", address)
			if err != nil {
				_ = here.Close()
				continue
			}
			for _, way := range [][2]net.Conn{{here, there}, {there, here}} {
				all.Go(func() {
					_, _ = io.Copy(way[0], way[1])
					_, _ = way[0].Close(), way[1].Close()
				})
			}
		}
	})
	t.Cleanup(func() { _ = ln.Close(); all.Wait() })
	return ln.Addr().String()
}

func TestM2_AnIPv6WorkerServesAndIsHeard(t *testing.T) {
	e := engine(t, "six", nil)
	cfg := settings(t, e)
	rec := &cfg.Workers.Static[0]
	rec.URL = "http://" + over6(t, strings.TrimPrefix(e.URL(), "http://"))
	for _, endpoints := range []map[int]string{rec.KVEvents, rec.Replay} {
		endpoints[0] = "tcp://" + over6(t, strings.TrimPrefix(endpoints[0], "tcp://"))
	}
	if !strings.HasPrefix(rec.URL, "http://[::1]:") {
		t.Fatalf("the worker is at %s", rec.URL)
	}
	a := start(t, cfg)
	defer func() {
		if err := a.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	if got := complete(t, a, strings.Repeat("a prompt of some length ", 40)); got != "w1" {
		t.Errorf("served by %q", got)
	}
	waitForBlocks(t, a, "w1")
}

func TestM3_ASoleWorkerRejoinsWithoutLoadAndWithoutItsOldBlocks(t *testing.T) {
	e := engine(t, "e1", nil)
	f := fleetOf(t, true, nil)
	w1, rank := behind(t, 1, e, func(r *fleet.Record) { r.Replay = nil }), fleet.Worker{ID: 1}
	applied(t, f, w1)
	for i := range 2 {
		if _, err := book(t, f, fmt.Sprint("b", i), nil); err != nil {
			t.Fatal(err)
		}
	}
	from := 1000
	testkit.Until(t, "events are heard", func() bool {
		from += 1000
		fill(t, e, 0, tokensFrom(from, 160))
		return f.Blocks(oneModel, rank) >= 10
	})
	opened, _, _ := f.Core.ResolveModel("m", "")
	applied(t, f)
	if n := f.Blocks(oneModel, rank); n != 0 || f.Core.Reservations() != 0 {
		t.Errorf("%d blocks and %d reservations after it left", n, f.Core.Reservations())
	}
	if _, err := book(t, f, "nobody", nil); err == nil {
		t.Error("somebody was chosen while there is no worker")
	} else if e, ok := errors.AsType[*core.Error](err); !ok || e.Code != core.CodeNoWorkers {
		t.Errorf("got %v, want no_workers", err)
	}
	applied(t, f, w1)
	if got := active(f)[rank]; got != 0 || f.Blocks(oneModel, rank) != 0 {
		t.Errorf("after it rejoined: %d requests, %d blocks", got, f.Blocks(oneModel, rank))
	}
	var prompt []uint32
	testkit.Until(t, "events are heard again", func() bool {
		from += 1000
		prompt = tokensFrom(from, 64)
		fill(t, e, 0, prompt)
		sel, err := book(t, f, fmt.Sprint("again", from), func(r *core.Request) { r.Kind = core.Query; r.Prompt.Tokens = prompt })
		if err != nil {
			t.Fatal(err)
		}
		return sel.Overlap.Device == 4
	})
	sel, err := book(t, f, "old", func(r *core.Request) { r.Prompt.Tokens = tokensFrom(2000, 160) })
	if err != nil || sel.Overlap.Device != 0 {
		t.Errorf("got %+v, %v; want an overlap of 0 with what it held before", sel, err)
	}
	if again, _, _ := f.Core.ResolveModel("m", ""); again != opened {
		t.Error("the partition is another one")
	}
}

func TestM4_MetadataChangesKeepBookingsAndTheStream(t *testing.T) {
	e := engine(t, "e1", nil)
	f := fleetOf(t, true, nil)
	rank := fleet.Worker{ID: 1}
	applied(t, f, behind(t, 1, e, func(r *fleet.Record) { r.TotalKVBlocks = 1000 }))
	for i := range 5 {
		if _, err := book(t, f, fmt.Sprint("b", i), nil); err != nil {
			t.Fatal(err)
		}
	}
	fill(t, e, 0, tokensFrom(1000, 64))
	heard(t, f, e, rank)
	before, replays := f.Blocks(oneModel, rank), stats(t, e, 0).ReplaysAnswered
	for _, n := range []int{2000, 3000, 4000} {
		applied(t, f, behind(t, 1, e, func(r *fleet.Record) { r.TotalKVBlocks, r.Taints = n, []string{fmt.Sprint("t", n)} }))
		fill(t, e, 0, tokensFrom(1000*n, 64))
		heard(t, f, e, rank)
	}
	st, _ := f.Stream(rank)
	if active(f)[rank] != 5 || f.Core.Reservations() != 5 {
		t.Errorf("load %v, %d reservations; want 5", active(f), f.Core.Reservations())
	}
	if f.Listens.Load() != 1 || f.Unlistens.Load() != 0 || st.Gaps != 0 || st.Restarts != 0 || !st.Trusted || stats(t, e, 0).ReplaysAnswered != replays {
		t.Errorf("%d listens, %d ends, stream %+v, replays %d then %d", f.Listens.Load(), f.Unlistens.Load(), st, replays, stats(t, e, 0).ReplaysAnswered)
	}
	if got := f.Blocks(oneModel, rank); got != before+12 {
		t.Errorf("%d blocks, want %d", got, before+12)
	}
}

func TestM5_AListWithOneIDTwiceChangesNothing(t *testing.T) {
	f := fleetOf(t, false, nil)
	applied(t, f, wish(t, 5, nil), wish(t, 6, nil))
	if _, err := book(t, f, "a", nil); err != nil {
		t.Fatal(err)
	}
	views, partitions := f.Reconciler.Workers(), f.Core.Partitions()
	elsewhere := wish(t, 5, func(r *fleet.Record) { r.Name, r.URL = "w5b", "http://127.0.0.1:9999" })
	err := f.Reconciler.Apply(t.Context(), "file", []fleet.Record{wish(t, 5, nil), elsewhere, wish(t, 7, nil), wish(t, 8, nil), wish(t, 9, nil)})
	if err == nil || !strings.Contains(err.Error(), `id "5" is taken by worker w5`) {
		t.Errorf("got %v", err)
	}
	if diff := cmp.Diff(views, f.Reconciler.Workers()); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(partitions, f.Core.Partitions()); diff != "" {
		t.Error(diff)
	}
}

func TestM6_NineServeAtOnceAndTheTenthOnceItFits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fleetOf(t, false, nil)
		list := func(tenth int) (all []fleet.Record) {
			for id := range fleet.WorkerID(9) {
				all = append(all, wish(t, id+1, nil))
			}
			return append(all, wish(t, 10, func(r *fleet.Record) { r.BlockSize = tenth }))
		}
		applied(t, f, list(32)...)
		v, _ := f.Reconciler.Worker("w10")
		if diff := cmp.Diff([]string{"block_size_mismatch: existing=16 requested=32"}, v.Reasons); ready(f) != 9 || diff != "" {
			t.Errorf("%d ready; %s", ready(f), diff)
		}
		chosen := map[fleet.WorkerID]bool{}
		for i := range 50 {
			sel, err := book(t, f, fmt.Sprint(i), nil)
			if err != nil {
				t.Fatal(err)
			}
			chosen[sel.Worker.ID] = true
		}
		if len(chosen) != 9 || chosen[10] {
			t.Errorf("chosen are %v, want the nine that fit", chosen)
		}
		<-time.After(3 * time.Second) // the bubble's clock
		applied(t, f, list(16)...)
		if sel, err := book(t, f, "tenth", pinned(10, 0)); err != nil || ready(f) != 10 {
			t.Errorf("%d ready; %v, %v", ready(f), sel, err)
		}
		if f.Core.Reservations() != 51 {
			t.Errorf("%d reservations, want all 51", f.Core.Reservations())
		}
	})
}

func TestM9_DeletingAndChoosingRaceThroughTheCatalog(t *testing.T) {
	f := fleetOf(t, false, nil)
	both := []fleet.Record{wish(t, 1, nil), wish(t, 2, nil)}
	applied(t, f, both...)
	over := make(chan struct{})
	var asking sync.WaitGroup
	for c := range 3 {
		asking.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-over:
					return
				default:
				}
				sel, err := book(t, f, fmt.Sprint(c, "-", i), nil)
				if e, ok := errors.AsType[*core.Error](err); err != nil && (!ok || e.Code != core.CodeNoWorkers) {
					t.Errorf("got %v, want a worker or no_workers", err)
				}
				if err == nil {
					sel.Reservation.Release(reserve.Outcome{Kind: reserve.Completed})
				}
			}
		})
	}
	for i := range 1000 {
		applied(t, f, both[i%2])
		applied(t, f, both...)
	}
	close(over)
	asking.Wait()
	if got := active(f); f.Core.Reservations() != 0 || got[fleet.Worker{ID: 1}]+got[fleet.Worker{ID: 2}] != 0 {
		t.Errorf("loads %v, %d reservations are left", got, f.Core.Reservations())
	}
}

// physician says how workers stand.
type physician struct {
	mu  sync.Mutex
	out map[fleet.WorkerID]bool
}

func (p *physician) Standing(_ context.Context, r fleet.Record) (core.Lifecycle, []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.out[r.ID] {
		return core.Ejected, []string{"3 probes failed"}
	}
	return core.Ready, nil
}

func (p *physician) set(f *app.Fleet, id fleet.WorkerID, out bool) {
	p.mu.Lock()
	p.out[id] = out
	p.mu.Unlock()
	f.Reconciler.Reconsider(id)
}

func TestM10_NobodyReachesAWorkerThatHealthHasEjected(t *testing.T) {
	p := &physician{out: map[fleet.WorkerID]bool{}}
	f := fleetOf(t, false, func(parts *app.FleetParts) { parts.Health = p })
	watched := func(id fleet.WorkerID) fleet.Record {
		return wish(t, id, func(r *fleet.Record) { r.NoHealthCheck = false })
	}
	applied(t, f, watched(1), watched(2))
	session := func(r *core.Request) { r.Session = "s" }
	var bound *core.Selection
	for i := 0; bound == nil || bound.Worker.ID != 1; i++ { // bind a session to w1
		sel, err := book(t, f, fmt.Sprint("s", i), func(r *core.Request) { r.Session = fmt.Sprint("s", i) })
		if err != nil || i > 100 {
			t.Fatal(i, err)
		}
		bound, session = sel, func(r *core.Request) { r.Session = fmt.Sprint("s", i) }
	}
	p.set(f, 1, true)
	testkit.Until(t, "it is ejected", func() bool { return ready(f) == 1 })
	if f.Core.Reservations() == 0 || active(f)[fleet.Worker{ID: 1}] == 0 {
		t.Error("what it had is gone")
	}
	for i := range 200 {
		ask := []func(*core.Request){nil, session, func(r *core.Request) { r.Session = fmt.Sprint("new", i) }}[i%3]
		sel, err := book(t, f, fmt.Sprint("after", i), ask)
		if err != nil || sel.Worker.ID != 2 {
			t.Fatalf("got %v, %v; want w2", sel, err)
		}
	}
	if sel, err := book(t, f, "pin", pinned(1, 0)); err == nil {
		t.Errorf("a pin reached it: %v", sel)
	}
	p.set(f, 1, false)
	testkit.Until(t, "it is back", func() bool { return ready(f) == 2 })
	if _, err := book(t, f, "pin again", pinned(1, 0)); err != nil {
		t.Error(err)
	}
}

func TestFewerRanksKeepTheBookingsAndStreamsOfThoseThatStay(t *testing.T) {
	e := engine(t, "e1", func(c *sim.Config) { c.Ranks = 4 })
	f := fleetOf(t, true, nil)
	applied(t, f, behind(t, 1, e, func(r *fleet.Record) { r.DPSize = 4 }))
	held := map[uint32]*core.Selection{}
	for rank := range uint32(4) {
		fill(t, e, int(rank), tokensFrom(1000*int(rank+1), 64))
		heard(t, f, e, fleet.Worker{ID: 1, Rank: rank})
		for i := range 2 {
			sel, err := book(t, f, fmt.Sprint(rank, "-", i), pinned(1, rank))
			if err != nil || sel.Worker.Rank != rank {
				t.Fatal(sel, err)
			}
			held[rank] = sel
		}
	}
	replays := stats(t, e, 0).ReplaysAnswered + stats(t, e, 1).ReplaysAnswered
	applied(t, f, behind(t, 1, e, func(r *fleet.Record) {
		r.DPSize = 2
		for _, rank := range []int{2, 3} {
			delete(r.KVEvents, rank)
			delete(r.Replay, rank)
		}
	}))
	if f.Listens.Load() != 4 || f.Unlistens.Load() != 2 || f.Core.Reservations() != 4 {
		t.Errorf("%d listens, %d ends, %d reservations; want 4, 2, 4", f.Listens.Load(), f.Unlistens.Load(), f.Core.Reservations())
	}
	for rank := range uint32(4) {
		w := fleet.Worker{ID: 1, Rank: rank}
		stays := rank < 2
		if _, ok := f.Stream(w); ok != stays {
			t.Errorf("rank %d is listened to: %t", rank, ok)
		}
		if n := f.Blocks(oneModel, w); n > 0 != stays {
			t.Errorf("rank %d has %d blocks", rank, n)
		}
		if n := active(f)[w]; n != map[bool]int{true: 2}[stays] {
			t.Errorf("rank %d has %d bookings", rank, n)
		}
		if released := !held[rank].Reservation.Release(reserve.Outcome{Kind: reserve.Completed}); released == stays {
			t.Errorf("the reservation of rank %d had ended: %t", rank, released)
		}
	}
	for rank := range 2 { // the next events of those that stay are applied without a gap
		fill(t, e, rank, tokensFrom(50_000+1000*rank, 64))
		heard(t, f, e, fleet.Worker{ID: 1, Rank: uint32(rank)})
		if st, _ := f.Stream(fleet.Worker{ID: 1, Rank: uint32(rank)}); st.Gaps != 0 || st.Restarts != 0 {
			t.Errorf("rank %d: %+v", rank, st)
		}
	}
	if got := stats(t, e, 0).ReplaysAnswered + stats(t, e, 1).ReplaysAnswered; got != replays {
		t.Errorf("%d replays were asked for, want %d", got, replays)
	}
	if _, err := book(t, f, "left", pinned(1, 3)); err == nil {
		t.Error("a rank that has left was chosen")
	}
}
