// Package catalog turns what sources want into what the core routes to. A
// Source hands over complete desired lists of worker records; the Reconciler
// compares each list with what it applied before and changes only what differs:
// a record's metadata without touching bookings or listeners, single ranks'
// event listeners, whole workers.
//
// Invariants: a list with a repeated id, name or endpoint changes nothing; a
// worker belongs to the source that brought it first; a worker that cannot be
// routed to yet, also because its record says too little, is listed as incomplete
// with its reasons and tried again with growing pauses; a source that is lost keeps
// its last list.
//
// Run owns the goroutines that retry; Bring and Apply own theirs and wait for
// them. No lock is held while an engine is asked or a partition is prepared, so
// that a silent engine delays no worker but its own. Locks: Reconciler.planning →
// entry.op → Reconciler.mu. The core and the listeners are called under the first
// two, never under mu.
//
//	r := catalog.New(core, listeners, sizes, log)
//	go r.Run(ctx)
//	err := r.Apply(ctx, "file", records)
package catalog
