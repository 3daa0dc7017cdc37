// Package upstream is the HTTP/1.1 client to workers, made for relaying
// streams: every phase has its own deadline, a call can be cancelled in any of
// them, and what arrives is handed on as it arrives.
//
//	client := upstream.New(upstream.DefaultConfig())
//	go client.Run(ctx) // closes idle connections in time
//	...
//	var call upstream.Call
//	body, err := client.Do(&call, endpoint, req, &resp.Header) // another goroutine may call.Cancel()
//	if err != nil { ... } // *Error says phase, time-out, cancelled, Retryable
//	defer body.Close()
//
// It owns the connections. Requests are written from the caller's own header
// and body with one vectored write, response heads are read into the caller's
// header, and no goroutine is started for a request. The one goroutine here
// is the caller's of [Client.Run].
//
// Invariants:
//   - a connection goes back to the pool only when the request went out whole,
//     the answer was read to its last byte, nothing follows it, both sides keep
//     alive, and the call was not cancelled;
//   - a pooled connection is used only if, at that moment, it is neither
//     closed nor holds bytes that nobody asked for;
//   - a request is sent a second time only by a caller, or once by Do itself
//     if it reused a connection that then failed before the first byte of the
//     answer; never after a time-out;
//   - trailers and interim answers (1xx) are read and dropped;
//   - errors hold no part of a request or an answer;
//   - a worker that failed several times in a row is not called until its
//     breaker's cooldown is over, then by one call at a time; see OnBreaker.
//
// Lock order: pool.mu, then host.mu. Call.mu, breakers.mu and breaker.mu are
// taken alone.
package upstream
