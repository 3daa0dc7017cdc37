package core

import (
	"fmt"
	"time"

	"github.com/routerd/routerd/core/reserve"
)

// What a caller that holds only the id of a reservation may do with it. Whoever
// holds the Reservation itself needs none of this.

// PrefillComplete takes the prompt of a reservation out of its rank's tokens to
// be prefilled. Again, it changes nothing. An id that is not reserved, though it
// may be claimed, is a not_found.
func (c *SelectionCore) PrefillComplete(id string) error {
	r, err := c.reservation(id)
	if err != nil {
		return err
	}
	r.FirstToken(time.Now())
	return nil
}

// OutputBlock tells that the answer of a reservation has filled n blocks. A
// fraction, 0 to 1, says how much all its output blocks and those of its prompt
// that nobody shares still count for; nil leaves that as it is.
func (c *SelectionCore) OutputBlock(id string, n int, fraction *float64) error {
	r, err := c.reservation(id)
	if err != nil {
		return err
	}
	if err := r.OutputBlock(n, fraction); err != nil {
		return invalid(err)
	}
	return nil
}

// Free ends a reservation. Its id is free at once; a second call is a not_found.
func (c *SelectionCore) Free(id string, o reserve.Outcome) error {
	r, err := c.reservation(id)
	if err != nil {
		return err
	}
	if !r.Release(o) {
		return notReserved(id) // somebody else was quicker
	}
	return nil
}

func (c *SelectionCore) reservation(id string) (*reserve.Reservation, error) {
	if len(id) > MaxIDBytes {
		return nil, notReserved(clip(id, 80))
	}
	r, ok := c.reservations.Find(id)
	if !ok {
		return nil, notReserved(id)
	}
	return r, nil
}

func notReserved(id string) *Error {
	return &Error{Code: CodeNotFound, Message: fmt.Sprintf("reservation %q not found", clip(id, 80)), Field: "selection_id"}
}

// Tick does what waits for time alone to pass: it lets reservations expire whose
// owners do not see to that, forgets selections that nobody has booked and
// sessions whose time is over, and lets requests go on that wait for a rank whose
// prefill is projected to be done or whose refusal is over. Call it a few times a
// second. It reports how many reservations have expired.
func (c *SelectionCore) Tick(now time.Time) (expired int) {
	expired = c.reservations.Expire(now)
	c.pending.Reap(now)
	c.forgetOver(now)
	for _, p := range c.directory.Load().partitions {
		p.sessions.Reap(now)
		p.look()
	}
	return expired
}

// look lets go on who can.
func (p *Partition) look() {
	p.mu.Lock()
	waiting := p.queue.Len() > 0
	p.mu.Unlock()
	if !waiting {
		return
	}
	p.hearReports()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pump()
}
