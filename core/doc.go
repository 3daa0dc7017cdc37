// Package core makes selections: which worker and data-parallel rank serves a
// request. It owns partitions (model and routing group), who is eligible, who is
// inhibited because it cannot be reached or passed over because it refuses or is
// overloaded, who waits because everybody is busy, which session goes where, the
// candidate table, the optimistic commit, projected load, reservations and decision
// records. It is a deterministic library: no network, no files, no Wasm, no metrics,
// no goroutine of its own. It reads the time but keeps none: what waits for time
// alone to pass is done by Tick and Forget, which the program around it calls.
//
// A decision reads an immutable view and a copy of the loads, runs the policy
// with no lock held and commits under the partition's lock if the chosen rank's
// version has not changed; else it decides again, after two conflicts in a turn
// of its own. The same snapshot, request and seed give the same choice.
//
// A request that has to wait does so on its caller's goroutine; whoever frees
// capacity looks under the partition's lock who may go on (pump), so that no wake-up
// is lost.
//
// Lock order: SelectionCore.resolving → SelectionCore.members → Partition.mu
// (several: in the order of their keys) → reserve.Book and affinity.Table, which take
// no further one. No guest, foreign interface, channel send or log under any of them,
// but that the policy source is asked under resolving, for which no request and no
// change of members waits.
//
//	c := core.New(core.DefaultConfig(), core.SelectionHost{}, policies, index, log)
//	err := c.Prepare(ctx, key, 16)
//	err = c.Commit(core.Change{Upserts: []core.Member{{Record: rec, Lifecycle: core.Ready}}})
//	sel, err := c.Select(ctx, &core.Request{Kind: core.Book, SelectionID: "r1", Partition: key})
//	c.Reached(sel.Worker.ID) // or Inhibit, when it could not be reached; or Refused
//	defer sel.Reservation.Release(reserve.Outcome{Kind: reserve.Completed})
package core
