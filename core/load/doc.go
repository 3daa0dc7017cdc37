// Package load projects what each (worker, rank) of a partition is doing from
// the bookings made on it: prompt tokens still to be prefilled, KV blocks held
// (shared prefixes once) and active requests. It also has what an engine says of
// itself (Report) and when the two together make an overload (Overload, Latch).
//
// A Tracker has no lock: its partition's lock guards it and every Booking made
// by it. Slots name ranks; a slot whose rank was removed is reused, and its old
// bookings are dropped before, so that a late release of one changes nothing.
// Loads are sums of whole numbers, blocks in millionths: never below 0, and
// exactly 0 when nothing is booked. The package starts no goroutine and reads no
// clock: what depends on time is given it.
//
//	t := load.NewTracker(load.Estimator{Kind: load.EstimateRate, TokensPerSecond: 8000})
//	s := t.Add()
//	t.Book(&b, s, load.PromptDemand(1000, 160, 16, hashes), owner, time.Now())
//	t.PrefillComplete(&b, time.Now())
//	t.Release(&b, time.Now())
package load
