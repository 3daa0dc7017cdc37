// Package queue keeps the requests that wait in one partition and says which of
// them is next.
//
// Classes share what becomes free by weighted deficit round robin, a request
// costing its prompt tokens. Inside a class come, in this order: the higher
// priority; the earlier due time, those with one first; the class's order
// (first come first served, or the shortest uncached prompt); the earlier
// arrival; the earlier push.
//
// A class's requests stand in lanes, one for each set of workers that they may
// go to: "" for any, another name for those that must go to a certain worker.
// A lane keeps its order: nobody in it passes its head. Lanes do not wait for
// each other. A request that waits for something else than a worker, such as
// another request of its session, is held: it counts in the limits and stands
// in no lane.
//
// A Queue has no lock and no clock: its partition's lock guards it, times come
// in with the requests, and whoever waits too long is taken out by its owner.
// It starts no goroutine. Push, Enter, Remove and one Next cost O(log n) for n
// that wait; Next also asks once for each lane that cannot go.
//
//	w := &queue.Waiter{Arrival: now, Tokens: 900, Owner: req}
//	err := q.Push(w, ready)          // *queue.FullError: refused
//	next := q.Next(func(w *queue.Waiter) bool { return free(w) })
//	q.Remove(w)                      // its caller has gone
package queue
