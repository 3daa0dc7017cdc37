// Package adapters loads and unloads LoRA adapters through the engines' own API,
// where the configuration says so (lora.manage). Each step it asks the engines
// what they have loaded (GET /v1/models), has the core plan (Core.PlanAdapters)
// and carries out what the plan wants.
//
// Invariants: only adapters of the configuration are touched, and only on ready
// workers of their model whose engine can load at run time (vllm, sglang). One
// call at a time for a worker. A worker is told to the core as having an adapter
// only while the engine lists it and nobody is about to unload it: first the core
// hears that it is absent, then its last booking ends, then it is unloaded. What
// failed is tried again with growing pauses, and listed with its reason. What the
// configuration no longer names is left as it is: as long as the engine lists it the
// core is told so, and requests for it are served; then, and when the worker's record
// says the same, what was told is taken back.
//
// Engines refuse a request for an adapter that is not loaded, and nothing loads
// one while a request waits; so managed workers are candidates with
// lora.Candidate.RegistrationRequired, as all others. Adapters are loaded ahead of
// requests: one replica of each as long as there are slots.
//
// Run owns all state and the goroutines that talk to engines, at most maxAsked and
// maxCalls at once, and waits for them. The core is called from Run's goroutine
// and, for AdapterUses, from those that wait for an adapter to fall out of use;
// never under a lock.
//
//	m := adapters.New(cfg, core, reconciler, log)
//	go m.Run(ctx)
//	m.Configure(changed)
package adapters
