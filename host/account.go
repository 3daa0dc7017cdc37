package host

import (
	"time"

	"github.com/routerd/routerd/host/meter"
	"github.com/routerd/routerd/plugins/abi"
)

// The account of one call: what fuel it was granted, slice by slice, what it
// used, and when it must end.

// charge takes the price of an import before it works.
func (in *instance) charge(bytes, elements uint32) {
	in.pay(abi.Fuel1().ImportPrice(bytes, elements))
}

// chargeMore takes the price of elements that showed only while an import
// worked.
func (in *instance) chargeMore(elements uint32) {
	in.pay(uint64(elements) * abi.Fuel1().ImportPerElement)
}

func (in *instance) pay(price uint64) {
	left := int64(in.fuel.Get()) - int64(price)
	in.fuel.Set(uint64(left))
	if left < 0 {
		in.refuel()
	}
}

// refuel grants the next slice or ends the call. It is the safepoint.
func (in *instance) refuel() {
	if in.fuel == nil {
		panic(errFuel)
	}
	left := int64(in.fuel.Get())
	grant, ok := meter.Grant(left, in.rest, abi.FuelSlice)
	if !ok {
		panic(errFuel)
	}
	if in.busy.size() > maxNativeStack {
		panic(errStack)
	}
	if in.ended() {
		panic(errDeadline)
	}
	in.lookAtClock()
	in.rest -= grant
	in.granted += grant
	in.fuel.Set(uint64(left + int64(grant)))
}

// ended tells whether nobody wants the call any more.
func (in *instance) ended() bool {
	return in.stop != nil && in.stop.Load() || in.asker != nil && in.asker.Err() != nil || in.rt.crew.closed.Load()
}

// lookAtClock ends a call that is past its deadline. Its time runs from the end
// of the first slice, so that the many calls that need no second one never read
// the clock; a slice takes less than a millisecond.
func (in *instance) lookAtClock() {
	if in.limit == 0 {
		return
	}
	now := time.Now()
	if in.deadline.IsZero() {
		in.deadline = now.Add(in.limit)
		return
	}
	if now.After(in.deadline) {
		panic(errDeadline)
	}
}

// begin starts a call's account: budget fuel, and limit on the wall clock.
func (in *instance) begin(budget uint64, limit time.Duration) {
	first := min(budget, abi.FuelSlice)
	in.rest, in.granted = budget-first, first
	in.limit, in.deadline = limit, time.Time{}
	in.fuel.Set(first)
	in.clock, in.random = 0, 0
}

// used is the fuel of the call so far: what was granted and what the guest owes,
// at most the budget. After a trap it is a lower bound, since what a guest had
// left is not always written down by then.
func (in *instance) used() uint64 {
	left := int64(in.fuel.Get())
	if left < 0 {
		return in.granted + min(-uint64(left), in.rest)
	}
	return in.granted - min(uint64(left), in.granted)
}
