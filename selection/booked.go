package selection

import "github.com/routerd/routerd/core"

// booked hands a booking to the exchange: it is released if its answer cannot be
// handed whole to the caller.
func (x *exchange) booked(sel *core.Selection) { x.rc.SetUserValue("booked", sel.Reservation) }
