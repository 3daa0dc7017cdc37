package selection_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"testing"
	"time"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/internal/testkit"
	"github.com/routerd/routerd/selection"
)

// explicitly books a worker of the caller's choice; kept books what was selected.
func explicitly(id string) string {
	return fmt.Sprintf(`{"selection_id":%q,"worker_id":1,"token_ids":[1,2,3,4,5,6,7,8,9],"effective_prefill_tokens":9}`, id)
}

func kept(id string) string { return fmt.Sprintf(`{"selection_id":%q}`, id) }

// forms are the two ways to book by /reservations; the second needs a selection first.
var forms = map[string]func(id string) string{"explicit": explicitly, "kept": kept}

// selects keeps a selection for later, where the form needs one.
func (s *site) selects(t testing.TB, form, id string) {
	t.Helper()
	if form == "kept" {
		s.post(t, "/select", fmt.Sprintf(`{"selection_id":%q,%s}`, id, nine)).want(t, 200)
	}
}

func TestR3_AReservationOfACallerThatGoesIsReleasedUnlessItsAnswerWasWritten(t *testing.T) {
	const calls, within = 100, 5 * time.Millisecond
	for form, body := range forms {
		t.Run(form, func(t *testing.T) {
			w := two(t, options{})
			var l *tape
			s := newSite(t, w, siteOptions{listener: func(ln net.Listener) net.Listener { l = &tape{Listener: ln}; return l }})
			for i := range calls {
				s.selects(t, form, fmt.Sprint(i))
			}
			before := l.accepted()
			s.hangUp(t, rand.New(rand.NewPCG(3, 4)), calls, within, func(i int) string { return request("POST", "/reservations", body(fmt.Sprint(i))) })
			testkit.Until(t, "every call has come", func() bool { return l.accepted() >= before+calls })
			s.http.CloseIdleConnections()
			testkit.Until(t, "every call has ended", func() bool { return s.gauge(t, "routerd_selection_service_connections") == 0 })
			l.check(t, s)
		})
	}
}

func TestR3_AReservationWhoseAnswerCannotBeWrittenIsReleased(t *testing.T) {
	for form, body := range forms {
		t.Run(form, func(t *testing.T) {
			w := two(t, options{})
			var l *tape
			broken := func(p []byte) bool { return bytes.HasPrefix(p, []byte("HTTP/1.1 201")) }
			s := newSite(t, w, siteOptions{listener: func(ln net.Listener) net.Listener { l = &tape{Listener: ln, fail: broken}; return l }})
			for i := range 5 {
				s.selects(t, form, fmt.Sprint(i))
				if a := s.raw(t, request("POST", "/reservations", body(fmt.Sprint(i)))); a.status != 0 {
					t.Errorf("got %d %s", a.status, a.body)
				}
			}
			testkit.Until(t, "the bookings are released", func() bool { return s.core.Stats().Reservations == 0 })
			if got := s.gauge(t, "routerd_selection_service_undelivered_total"); got != 5 {
				t.Errorf("%v are counted as undelivered, want 5", got)
			}
			s.do(t, "DELETE", "/reservations/0", "").want(t, 404)
			l.check(t, s)
		})
	}
}

// tardy is a core that books by name when its caller has gone.
type tardy struct{ selection.Core }

func (l tardy) Reserve(ctx context.Context, b *core.Booking) (*core.Selection, error) {
	sel, err := l.Core.Reserve(context.WithoutCancel(ctx), b)
	<-ctx.Done()
	return sel, err
}

func TestR3_AReservationThatComesWhenTheCallerHasGoneIsReleased(t *testing.T) {
	for form, body := range forms {
		t.Run(form, func(t *testing.T) {
			w := two(t, options{})
			s := newSite(t, w, siteOptions{parts: func(p *selection.Parts) { p.Core = tardy{p.Core} }})
			s.selects(t, form, "r")
			c := s.dial(t)
			if _, err := io.WriteString(c, request("POST", "/reservations", body("r"))); err != nil {
				t.Fatal(err)
			}
			testkit.Until(t, "it is booked", func() bool { return w.core.Stats().Reservations == 1 })
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
			testkit.Until(t, "it is released", func() bool { return w.core.Stats().Reservations == 0 })
			if active, prefill, decode := w.active(); active != 0 || prefill != 0 || decode != 0 {
				t.Errorf("left: %d requests, %d tokens, %v blocks", active, prefill, decode)
			}
		})
	}
}
