// Package lora decides which workers may serve a request for a LoRA adapter, and
// which workers should have which adapter loaded. It is pure: no clock, no
// goroutine, no network. The caller tells the time, the arrivals and the state of
// the workers; somebody else carries the actions out.
//
// # Who may serve (Narrow)
//
// The universe is the caller's allow-set, or else every eligible worker. A worker
// with RegistrationRequired answers 404 for an adapter that it has not loaded, so
// it counts only once it has; the others load it when they are asked. Of those
// that count, the first row that keeps somebody decides:
//
//	adapter      kept
//	unknown      1. those that have it loaded   2. all
//	active       1. those of its replica set that have it loaded
//	             2. those of its replica set
//	             3. those that have it loaded   4. the first by rendezvous
//	not active   1. the first of its replica set
//	             2. those that have it loaded   3. the first by rendezvous
//
// Unknown is an adapter that the allocation does not list; active is one with
// arrivals in the window. Nobody outside the universe is ever kept, and where a
// worker of the universe counts, somebody is. Where none counts, nobody is kept
// and the caller answers that no worker has the adapter: to send the request to a
// worker that is sure to refuse it would help nobody.
//
// A request without an adapter is not narrowed, and a pinned worker that counts
// (Candidate.Counts) is kept whatever the allocation says: both are the caller's.
//
// # Who should have it loaded (Allocator)
//
// An Allocator belongs to one partition. Each Tick estimates an adapter's load
// from its arrivals in a sliding window, smoothed, and gives it replicas by its
// share of all slots: at least one while it is active, at most one a worker.
// Growth is at once; it shrinks when it wanted fewer for some ticks in a row. An
// adapter that is not active keeps one, where there is room. Placements stay where
// they are; new ones go by rendezvous order to workers that have the adapter
// already, then to those with a free slot. An active adapter that finds no free
// slot takes that of one that is not active; where there is none it goes to its
// first worker in spite of the slots (overflow). Without any slot nothing new is
// placed, and what is loaded stays.
//
// Workers that nobody manages are never told to load or unload: what they have
// loaded stands in the replica sets as it is. An adapter is not unloaded while
// nobody of its replica set has it loaded.
//
//	alloc := lora.NewAllocator(lora.DefaultAllocatorConfig())
//	alloc.Arrived("sql", now)                // for each request
//	table, actions := alloc.Tick(now, workers) // each step
//	lora.Narrow(table, "sql", universe, keep)
package lora
