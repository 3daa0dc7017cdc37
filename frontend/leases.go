package frontend

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"time"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/core/reserve"
)

// Why leases?
//
// A booking ends with its exchange, and the core lets none of the frontend's
// expire: a stream may last for hours. An exchange that hangs, most often on a
// client that stays connected and reads nothing, would hold its booking, and
// with it a session's, for ever. So each booking has a lease that relayed bytes
// renew, and a scan with a second chance: it clears the mark of a renewal and
// ends the exchange whose mark it finds cleared. What says nothing goes within
// two scans, what relays anything between them stays.
//
// What waits without a booking (for tokens, in the queue) has no lease. Neither
// is silence held against an exchange that waits for the head of the worker's
// answer: the upstream client bounds that by itself, with first_byte_timeout.

// leaseScan is the default of Config.LeaseScan. It is not below the pause that
// the upstream client allows within an answer, so that a silent worker is found
// out there, as a worker's failure.
const leaseScan = 5 * time.Minute

// errSilent ends an exchange whose lease ran out.
var errSilent = errors.New("nothing was relayed for too long")

// lease is the sign of life of an exchange's booking. The connection's
// goroutine gives it, the scan looks for it.
type lease struct {
	client  *conn                          // set once, before the exchange is registered
	held    atomic.Pointer[core.Selection] // what was booked last; nil before the first
	renewed atomic.Bool                    // something was relayed since the last scan
	asked   atomic.Bool                    // the head of the answer is not there yet
	expired bool                           // owned by the scan
}

// take begins the lease of a booking.
func (l *lease) take(sel *core.Selection) {
	l.renewed.Store(true)
	l.asked.Store(true)
	l.held.Store(sel)
}

// answered tells that the worker's answer has begun.
func (l *lease) answered() {
	l.renewed.Store(true)
	l.asked.Store(false)
}

// renew tells that bytes of the answer came by.
func (l *lease) renew() {
	if !l.renewed.Load() {
		l.renewed.Store(true)
	}
}

// silent returns what was booked where the lease was not renewed since the last
// call; nil where it was, or need not be.
func (l *lease) silent() *core.Selection {
	sel := l.held.Load()
	if sel == nil || l.asked.Load() || l.renewed.Swap(false) {
		return nil
	}
	return sel
}

// runLeases scans until ctx ends.
func (s *Server) runLeases(ctx context.Context) {
	for {
		every := s.cfg.Load().LeaseScan
		if every == 0 {
			every = leaseScan
		}
		select {
		case <-time.After(every):
			s.scanLeases()
		case <-ctx.Done():
			return
		}
	}
}

// scanLeases frees the bookings that were silent since the last scan and
// cancels their exchanges. One that is still there a scan later hangs in a
// write: the client's connection is closed under it.
func (s *Server) scanLeases() {
	for _, x := range s.calls.underWay() {
		l := &x.lease
		if l.expired && l.client != nil {
			_ = l.client.Conn.Close() // it is gone either way
		}
		sel := l.silent()
		if sel == nil || !sel.Reservation.Release(reserve.Outcome{Kind: reserve.Expired}) {
			continue
		}
		l.expired = true
		x.end(errSilent)
		s.metrics.expired.Inc()
		s.log.Warn("booking expired: its exchange relayed nothing", "worker", sel.Name, "rank", sel.Worker.Rank, "request", x.id)
	}
}

// renewing reads the worker's answer for one that takes it whole, and renews
// the lease meanwhile.
type renewing struct{ x *exchange }

var _ io.Reader = renewing{}

// Read reads from the worker.
func (r renewing) Read(p []byte) (int, error) {
	n, err := r.x.body.Read(p)
	if n > 0 {
		r.x.lease.renew()
	}
	return n, err
}
