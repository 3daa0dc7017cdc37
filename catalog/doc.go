// Package catalog turns what sources want into what the core routes to. A
// Source hands over complete desired lists of worker records; the Reconciler
// compares each list with what it applied before and changes only what differs:
// a record's metadata without touching bookings or listeners, single ranks'
// event listeners, whole workers. What a record leaves unset, its engine may tell
// (Facts); whether a worker is fit to serve, Health tells; Drain takes one out.
//
// Invariants: a list with a repeated id, name or endpoint changes nothing; a
// worker belongs to the source that brought it first; what a record says goes before
// what its engine tells; a worker that cannot be routed to yet, also because its
// record says too little, is listed as incomplete with its reasons and tried again
// with growing pauses; one that is ejected or drains keeps its listeners, until its
// time to drain is over; a source that is lost keeps its last list.
//
// Run owns the goroutines that retry; Bring and Apply own theirs and wait for
// them; Follow owns those of one source. No lock is held while an engine is asked or
// a partition is prepared, so that a silent engine delays no worker but its own.
// Locks: Reconciler.planning → entry.op → Reconciler.mu. The core and the listeners
// are called under the first two, never under mu.
//
//	r := catalog.New(catalog.Parts{Core: core, Listeners: listeners, Engines: engines, Health: health}, log)
//	go r.Run(ctx)
//	err := catalog.NewSources(r, log).Follow(ctx, source, catalog.DefaultFollowConfig())
package catalog
