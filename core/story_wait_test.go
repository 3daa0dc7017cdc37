package core_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/core/reserve"
	"github.com/routerd/routerd/fleet"
)

// asking is a selection that runs beside the story.
type asking struct {
	cancel context.CancelFunc
	done   chan struct{} // closed when it has ended
	told   bool
	sel    *core.Selection
	err    error
}

// ended tells whether the selection has ended; what it booked is held then.
func (s *story) ended(a *asking) bool {
	select {
	case <-a.done:
	default:
		return false
	}
	if a.sel != nil && a.sel.Reservation != nil && !a.told {
		s.held[a.sel.ID] = a.sel
	}
	a.told = true
	return true
}

func (a *asking) answer() string {
	if a.err != nil {
		return failure(a.err)
	}
	return chosen(a.sel)
}

// beside starts a selection that the story does not wait for: "go NAME book …"
// answers how it ended or that it waits.
func (s *story) beside(d *datadriven.TestData) string {
	kinds := map[string]core.Kind{"book": core.Book, "query": core.Query, "advisory": core.Advisory}
	n := names(d)
	req, limit := s.request(d, kinds[n[1]])
	ctx, cancel := context.WithCancel(s.t.Context())
	if limit > 0 {
		ctx, cancel = context.WithTimeout(s.t.Context(), limit)
	}
	a := &asking{cancel: cancel, done: make(chan struct{})}
	s.asked[n[0]] = a
	world := s.world
	go func() {
		defer close(a.done)
		a.sel, a.err = world.Select(ctx, req)
	}()
	synctest.Wait()
	if s.ended(a) {
		return a.answer()
	}
	return "waits"
}

// settle lets everything happen that can without time passing and answers how
// those ended who have meanwhile, by name; "settle anyone" leaves the names out,
// for where it is open who of several is the first.
func (s *story) settle(d *datadriven.TestData) string {
	synctest.Wait()
	anyone := d != nil && slices.Contains(names(d), "anyone")
	var lines []string
	for name, a := range s.asked {
		switch {
		case a.told || !s.ended(a):
		case anyone:
			lines = append(lines, a.answer())
		default:
			lines = append(lines, name+": "+a.answer())
		}
	}
	slices.Sort(lines)
	return cmp.Or(strings.Join(lines, "\n"), "nobody")
}

// cancel gives up the selections that it names.
func (s *story) cancel(d *datadriven.TestData) string {
	for _, name := range names(d) {
		s.asked[name].cancel()
	}
	return s.settle(nil)
}

// waiting tells what waits in each class.
func (s *story) waiting(d *datadriven.TestData) string {
	key := fleet.PartitionKey{Model: arg(d, "model", "m1")}.Normalised()
	var b strings.Builder
	for _, c := range s.world.stats(key).Queue {
		if c.Requests > 0 {
			fmt.Fprintf(&b, "%s: %d requests %d tokens\n", c.Class, c.Requests, c.Tokens)
		}
	}
	if n := s.world.Granted(key); n > 0 {
		fmt.Fprintf(&b, "granted %d\n", n)
	}
	return cmp.Or(b.String(), "nobody")
}

// stats is what a partition holds; zero when there is none.
func (w *world) stats(key fleet.PartitionKey) core.PartitionStats {
	for _, p := range w.Stats().Partitions {
		if p.Key == key.Normalised() {
			return p
		}
	}
	return core.PartitionStats{}
}

// waitingIn counts the requests that wait in a partition.
func (w *world) waitingIn(key fleet.PartitionKey) (n int) {
	for _, c := range w.stats(key).Queue {
		n += c.Requests
	}
	return n
}

// tick does what waits for time alone to pass.
func (s *story) tick(*datadriven.TestData) string {
	out := fmt.Sprintf("expired %d", s.world.Tick(time.Now()))
	if more := s.settle(nil); more != "nobody" {
		out += "\n" + more
	}
	return out
}

func (s *story) advance(d *datadriven.TestData) string {
	by, err := time.ParseDuration(names(d)[0])
	if err != nil {
		s.t.Fatal(err)
	}
	<-time.After(by)
	if more := s.settle(nil); more != "nobody" {
		return more
	}
	return "ok"
}

// end gives up and frees all that there is; nothing may be left then.
func (s *story) end() {
	if s.world == nil {
		return
	}
	s.gate.lift()
	for _, a := range s.asked {
		a.cancel()
	}
	synctest.Wait()
	for name, a := range s.asked {
		if !s.ended(a) {
			s.t.Fatalf("%s waits though it was given up", name)
		}
	}
	for _, sel := range s.held {
		sel.Reservation.Release(reserve.Outcome{Kind: reserve.Completed})
	}
	if msg := s.world.leftOver(); msg != "" {
		s.t.Error(msg)
	}
}

// leftOver tells what a world holds in which everything has ended; empty for
// nothing.
func (w *world) leftOver() string {
	for name, l := range w.loads() {
		if l != (core.LoadView{}) {
			return fmt.Sprintf("left over at the end: %s has %+v", name, l)
		}
	}
	if n := w.Reservations(); n != 0 {
		return fmt.Sprintf("left over at the end: %d reservations", n)
	}
	for _, p := range w.Stats().Partitions {
		if w.waitingIn(p.Key) != 0 || w.Granted(p.Key) != 0 || p.Sessions.Leases != 0 || p.Sessions.Initialising != 0 {
			return fmt.Sprintf("left over at the end: %+v, %d granted", p, w.Granted(p.Key))
		}
	}
	return ""
}
