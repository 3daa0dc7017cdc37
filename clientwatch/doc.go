// Package clientwatch tells at once when a connected client has gone away,
// also while its request waits for a silent worker.
//
// A [Watcher] owns one epoll set and one goroutine ([Watcher.Run]). A
// [Listener] made by [Watcher.Wrap] hands out every accepted connection as a
// [Conn] that is registered there: one epoll_ctl per connection, nothing per
// request. A handler finds its connection with [Find] and says with
// [Conn.OnGone] what has to be cancelled.
//
//	w, err := clientwatch.New(clientwatch.DefaultConfig())
//	go w.Run(ctx)
//	server.Serve(w.Wrap(ln)) // TLS goes above: tls.NewListener(w.Wrap(ln), tlsConfig)
//	...
//	stop, ok := clientwatch.Find(ctx.Conn()).OnGone(call.Cancel)
//	if !ok { return } // already gone
//	defer stop()
//
// Invariants: ids are never used twice, so a late event of a closed
// connection finds nothing; a callback runs at most once; no callback runs
// under a lock. Lock order: none is ever taken while another is held.
//
// The watcher is separate from the listener because a graceful stop closes
// the listener first, while the streams that it lets finish must still be
// watched. Close listeners, drain, then end Run or Close the watcher.
//
// Systems other than Linux have no watching: there a client counts as gone
// when a write to it fails, or when a read fails with anything but a time-out.
package clientwatch
