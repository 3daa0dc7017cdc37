// Package host runs guest modules: it checks, meters, compiles, limits, pools
// and calls them, and keeps the named policies that are made from them.
//
// A Runtime loads modules (ABI §7) and holds what they share: the engine, the
// compiled cache, the memory budget and the pools, one per (module digest,
// configuration digest), of a module that keeps state one per partition too.
// Stages makes pipeline stages from stored modules.
// PolicySource keeps named policies with numbered revisions under the data
// folder and hands core the handle that a partition decides with. Beside the
// active revision it may let a canary decide for a share of the requests and a
// shadow for nobody. What a policy is stands in one file that is replaced as a
// whole, before anybody decides by it: after a crash it is as before the change
// or as after it. Only what is active, canary, shadow or was put last is
// compiled.
//
// Invariants: a guest runs only metered code under a fuel budget and a page
// limit, and its native stack is looked at after each slice; one call at a time
// per instance; an instance that faulted is thrown away before anything else
// happens; a result is checked before it is believed; what a call says is seen
// outside only when its decision is committed; a module that is refused
// leaves everything as it was and the error names the step, an ABI code and the
// offending item; a panic in a load is that load's error.
//
// Goroutines: those of a pool, which make instances, bind larger frames and call
// rp_idle, and which closing the pool waits for; and one of a Runtime for audits,
// begun by the first, which Close waits for. One module at a time is rewritten or loaded from the compiled cache, and
// one is compiled beside it, in a child process that the loading goroutine waits
// for; a call runs on its caller's goroutine. Where both turns are needed, that
// of compiling is taken first. PolicySource.Run has two: one decides for all
// shadows, in a tenth of a core, one writes trips down and probes what has
// tripped.
//
//	rt, err := host.New(cfg, log, registerer)
//	src, err := host.OpenPolicySource(ctx, rt, modules, policyConfig, log)
//	go src.Run(ctx)
//	rev, created, err := src.Put(ctx, "default", spec, "admin")
package host
