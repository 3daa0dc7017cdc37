// Package selection is the selection service: an HTTP surface on a listener of
// its own for systems that forward requests themselves. It asks the core where a
// request should go, books it there, and is told how the request goes on; it
// never sees the request itself. Routes, fields and statuses are those of
// Dynamo's selection service 1.6.1, with the differences that docs/guide/selection.md
// lists.
//
// Invariants: all routes stand in one table, which dispatches, is described as
// OpenAPI and is walked by tests; with a token configured, nobody without it gets
// more than /health; bodies are bounded before they are read and refused unless
// they are understood whole, naming the field; every error has the one form; a
// booking whose answer could not be handed whole to the caller's socket is
// released again; no answer, log line or metric holds a prompt or a token.
//
// The server starts its goroutines in Serve and has ended them when Shutdown
// returns.
//
//	srv, err := selection.New(cfg, parts, log, registry)
//	err = srv.Serve(listener) // until Shutdown
package selection
