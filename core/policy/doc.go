// Package policy turns a policy's specification into decisions: the candidate
// table that stages read, the built-in stages, the pipeline that filters,
// combines scores and picks, and revisions that are swapped under traffic. Lint
// says what about a specification is of no effect, Trial what it would have
// picked for recorded requests.
//
// Invariants: a decision reads one revision from start to end; a revision
// closes its stages once, after it was retired and its last call ended; the
// same table, seed and revision give the same pick. No stage may keep the table
// or a slice of it. The package starts no goroutine and allocates nothing per
// candidate once a Decision has been used.
//
//	p, digests, err := policy.Compile(ctx, spec, modules)
//	rev := policy.NewRevision("default", 1, spec, p, digests)
//	handle, err := policy.NewHandle(rev)
//	r := handle.Acquire(policy.Ask{Seed: table.Seed})
//	defer r.Release()
//	err = r.Decide(ctx, &table, &decision) // decision.Row is the pick
package policy
