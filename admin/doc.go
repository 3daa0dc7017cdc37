// Package admin is the admin API: an HTTP surface on a listener of its own that
// puts modules, makes and activates policies, registers workers, and shows
// partitions, decisions and metrics. It holds no state: every route reads or
// changes one of [Parts].
//
// Invariants: all routes stand in one table, which dispatches, is documented as
// OpenAPI and is walked by a test; a route without `public` answers nobody who
// lacks the bearer token, and reads no body of theirs; bodies are bounded before
// they are read; what is not understood whole is refused, naming the field;
// every error has the one form and a code of the closed list; every change
// leaves an audit line; no answer, log line or metric holds a token.
//
// The server starts its goroutines in Serve and has ended them when Shutdown
// returns.
//
//	srv, err := admin.New(cfg, parts, log)
//	err = srv.Run(ctx, listener) // until ctx ends
package admin
