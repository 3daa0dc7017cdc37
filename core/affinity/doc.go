// Package affinity keeps which worker each session of a partition is bound to,
// and the leases that keep a binding alive.
//
// A session is absent, initialising (its first request is being decided and
// others wait for it) or bound. A binding has leases, one for each hold or
// booking; after the last one the idle time runs, and then the binding is gone.
//
// Invariants: an initialising session has no leases; a bound one has leases or
// an end of its idle time, never both; no live binding is pushed out by another
// session; a lease counts once and is released at most once. The lease of a
// binding that was dropped is harmless: its session's next binding does not
// know it.
//
// A Table has its own lock, which guards all that its holds and leases share;
// no callback is made under it, and it is the last to be taken. The package
// starts no goroutine and reads no clock: now comes in.
//
//	h := t.Take(session, now)
//	for h.State() == affinity.Waiting {
//		<-h.Changed() // or the request's end: then h.Abandon
//		h = t.Take(session, now)
//	}
//	// decide; a failure before the booking: h.Abandon(now)
//	lease := h.Commit(affinity.Target{Worker: w, Generation: g}, now)
//	defer lease.Release(now)
package affinity
