package frontend_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/core/reserve"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/frontend"
)

// dropped is a booking that notes its end.
type dropped struct {
	mu   sync.Mutex
	when time.Time
	how  reserve.Kind
}

func (*dropped) PrefillComplete(time.Time) {}
func (*dropped) AddBlocks(int, *float64)   {}
func (d *dropped) Drop(o reserve.Outcome) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.when, d.how = time.Now(), o.Kind
}

// kind is how the booking ended; empty while it lives.
func (d *dropped) kind() reserve.Kind {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.how
}

func (d *dropped) at() time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.when
}

// leaseScan is the default.
const leaseScan = 5 * time.Minute

// scanned runs f beside the scan of leases, in a bubble of time.
func scanned(t *testing.T, f func(t *testing.T, s *frontend.Server, book func() (*core.Selection, *dropped))) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s, err := frontend.New(frontend.DefaultConfig(), nil, nil, nil, nil, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { s.RunLeases(ctx); close(done) }()
		defer func() { stop(); <-done }()
		var all reserve.Book
		n := 0
		f(t, s, func() (*core.Selection, *dropped) {
			n++
			claim, _ := all.Claim(fmt.Sprint(n))
			d := &dropped{}
			return &core.Selection{Name: "w1", Reservation: claim.Insert(reserve.Key{}, d, reserve.Terms{})}, d
		})
	})
}

// pass lets time go by, until all that is due then was done.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func TestATenMinuteStreamKeepsItsReservation(t *testing.T) {
	for _, pause := range []time.Duration{time.Second, time.Minute, leaseScan - time.Millisecond, leaseScan} {
		t.Run(pause.String(), func(t *testing.T) {
			scanned(t, func(t *testing.T, s *frontend.Server, book func() (*core.Selection, *dropped)) {
				sel, d := book()
				x := s.UnderWay(sel)
				x.Answered()
				for began := time.Now(); time.Since(began) < 10*time.Minute; {
					pass(pause)
					x.Relayed()
				}
				if sel.Reservation.Released() || x.Ended() != nil || d.kind() != "" {
					t.Errorf("freed as %q, ended by %v", d.kind(), x.Ended())
				}
			})
		})
	}
}

func TestAnOrphanGoesWithinTwoScans(t *testing.T) {
	for _, last := range []time.Duration{0, time.Millisecond, leaseScan - time.Millisecond, leaseScan + time.Millisecond, 17 * time.Minute} {
		t.Run(last.String(), func(t *testing.T) {
			scanned(t, func(t *testing.T, s *frontend.Server, book func() (*core.Selection, *dropped)) {
				sel, d := book()
				x := s.UnderWay(sel)
				x.Answered()
				for began := time.Now(); time.Since(began) < last; {
					pass(min(time.Minute, last-time.Since(began)))
					x.Relayed()
				}
				silent := time.Now()
				pass(2 * leaseScan)
				if !sel.Reservation.Released() || d.kind() != reserve.Expired || !errors.Is(x.Ended(), frontend.ErrSilent) {
					t.Fatalf("freed: %v as %q, ended by %v", sel.Reservation.Released(), d.kind(), x.Ended())
				}
				if took := d.at().Sub(silent); took < leaseScan || took > 2*leaseScan {
					t.Errorf("freed after %v", took)
				}
			})
		})
	}
}

func TestARequestThatWaitsForItsFirstByteIsNoOrphan(t *testing.T) {
	scanned(t, func(t *testing.T, s *frontend.Server, book func() (*core.Selection, *dropped)) {
		sel, d := book()
		x := s.UnderWay(sel)
		pass(50 * time.Minute) // the upstream client would long have ended it
		if sel.Reservation.Released() {
			t.Fatal("freed while it waited for the worker's answer")
		}
		x.Answered()
		pass(leaseScan)
		if sel.Reservation.Released() {
			t.Error("freed at the first scan after the answer began")
		}
		pass(leaseScan)
		if d.kind() != reserve.Expired {
			t.Errorf("after a silence of two scans it is %q", d.kind())
		}
	})
}

func TestAFurtherAttemptHasALeaseOfItsOwn(t *testing.T) {
	scanned(t, func(t *testing.T, s *frontend.Server, book func() (*core.Selection, *dropped)) {
		first, d1 := book()
		x := s.UnderWay(first)
		x.Answered()
		pass(2*leaseScan - time.Millisecond) // its mark was cleared
		x.Drop()
		pass(4 * leaseScan) // nothing is booked meanwhile: it waits in the queue
		second, d2 := book()
		x.Attempt(second)
		pass(4 * leaseScan)
		x.Answered()
		pass(leaseScan)
		if d1.kind() != reserve.Failed || d2.kind() != "" || x.Ended() != nil {
			t.Errorf("first %q, second %q, ended by %v", d1.kind(), d2.kind(), x.Ended())
		}
		pass(leaseScan)
		if d2.kind() != reserve.Expired {
			t.Errorf("the second went as %q", d2.kind())
		}
	})
}

func TestAnExchangeWhoseBookingHasJustEndedIsLeftAlone(t *testing.T) {
	scanned(t, func(t *testing.T, s *frontend.Server, book func() (*core.Selection, *dropped)) {
		sel, d := book()
		x := s.UnderWay(sel)
		x.Answered()
		pass(2*leaseScan - time.Millisecond)
		sel.Reservation.Release(reserve.Outcome{Kind: reserve.Withdrawn}) // as by the core
		pass(time.Hour)
		if d.kind() != reserve.Withdrawn || x.Ended() != nil {
			t.Errorf("%q, ended by %v", d.kind(), x.Ended())
		}
	})
}

func TestLeaseScanIsBounded(t *testing.T) {
	for scan, good := range map[time.Duration]bool{
		0: true, time.Millisecond: true, time.Hour: true, time.Millisecond - 1: false, time.Hour + 1: false, -1: false,
	} {
		cfg := frontend.DefaultConfig()
		cfg.LeaseScan = scan
		fe, refused := errors.AsType[*fleet.FieldError](cfg.Validate())
		if refused == good || refused && fe.Field != "lease_scan" {
			t.Errorf("%v: got %v", scan, fe)
		}
	}
}

func TestAClientIsToldOfAnExpiredLeaseWhereItStillCanBe(t *testing.T) {
	if a := frontend.AnswerTo(frontend.ErrSilent); a.Status != 504 || a.Code != "worker_timeout" || a.Message == frontend.ErrSilent.Error() {
		t.Errorf("%+v", a)
	}
}

// shortScan is short for a test, yet longer than a busy machine's stalls.
const shortScan = 200 * time.Millisecond

func TestAClientThatReadsNothingLosesItsBooking(t *testing.T) {
	w := start(t, func(s *setup) { s.frontend.LeaseScan = shortScan })
	closed := make(chan struct{})
	w.join(t, "w1", serve(t, func(p *peer) {
		if _, ok := p.next(); !ok {
			return
		}
		p.say(sse)
		for piece := event(strings.Repeat("x", 64<<10)); ; {
			if _, err := io.WriteString(p, piece); err != nil {
				close(closed)
				return
			}
		}
	}).url)
	nc := w.raw(t, post(chatPath, `{"model":"m","stream":true,"messages":[]}`))
	wait(t, "close at the worker", closed)
	eventually(t, "release", func() bool { return w.active("w1") == 0 && w.core.Reservations() == 0 })
	// The goroutine hangs in a write: the connection goes too.
	eventually(t, "end", func() bool { return w.metric(t, "routerd_frontend_in_flight") == 0 })
	if _, err := io.Copy(io.Discard, nc); errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the client's connection is open: %v", err)
	}
	if got := w.released.kinds(); got["expired"] != 1 || len(got) != 1 {
		t.Errorf("bookings ended as %v", got)
	}
	for name, want := range map[string]float64{
		"leases_expired_total": 1, "client_cancelled_total": 0, "worker_failures_total": 0,
	} {
		if n := w.metric(t, "routerd_frontend_"+name); n != want {
			t.Errorf("%s is %v", name, n)
		}
	}
	if n := strings.Count(w.log.String(), "booking expired"); n != 1 {
		t.Errorf("%d lines of the log say so", n)
	}
}

func TestLiveExchangesOutlastTheScans(t *testing.T) {
	const scans, step = 6, shortScan / 20
	trickle := func(p *peer, piece string) {
		for range scans * int(shortScan/step) {
			<-time.After(step)
			p.say(piece)
		}
	}
	for _, c := range []struct {
		name, request, want string
		answer              func(p *peer)
	}{
		{
			"a stream", post(chatPath, `{"model":"m","stream":true,"messages":[]}`), "data: [DONE]",
			func(p *peer) { p.say(sse); trickle(p, event("1")); p.say(event("[DONE]") + lastChunk) },
		},
		{
			"a body of known length", post(chatPath, chatBody), "last",
			func(p *peer) {
				p.say(fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", scans*int(shortScan/step)+4))
				trickle(p, "x")
				p.say("last")
			},
		},
		{
			"an answer that is held for HTTP/1.0", strings.Replace(post(chatPath, chatBody), "HTTP/1.1", "HTTP/1.0", 1), "last",
			func(p *peer) {
				p.say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
				trickle(p, chunk("x"))
				p.say(chunk("last") + lastChunk)
			},
		},
		{
			"a first byte that takes long", post(chatPath, chatBody), "last",
			func(p *peer) { <-time.After(scans * shortScan); p.say(plain("last")) },
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := start(t, func(s *setup) { s.frontend.LeaseScan = shortScan })
			w.join(t, "w1", serve(t, func(p *peer) {
				if _, ok := p.next(); ok {
					c.answer(p)
				}
			}).url)
			readUntil(t, w.raw(t, c.request), c.want)
			eventually(t, "release", func() bool { return w.active("w1") == 0 })
			if got := w.released.kinds(); got["completed"] != 1 || len(got) != 1 {
				t.Errorf("bookings ended as %v", got)
			}
			if n := w.metric(t, "routerd_frontend_leases_expired_total"); n != 0 {
				t.Errorf("%v leases expired", n)
			}
		})
	}
}
