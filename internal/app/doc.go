//go:generate go test . -run TestMetrics -update

// Package app wires a router from its parts and is the only importer of fx. One
// file a module, in the order in which data flows: state, plugins, selection,
// catalog, proxy, admin. Everything that a module starts it stops and waits
// for, in reverse order: first the listeners, then what they use.
//
//	router, err := app.Start(ctx, cfg, log)
//	err = router.Wait(ctx)  // until ctx ends or a part fails
//	err = router.Stop(ctx)  // drains, at most the configured grace
package app
