// Package frontend is the OpenAI-compatible proxy: it reads a request, asks the
// core which worker serves it, and relays bytes between the two. It has no
// routing logic of its own: whom to leave out because it did not answer is the
// core's to know, the frontend only reports it.
//
// It owns the client connections and the calls under way, and these rules:
//
//   - a request's body is scanned once for the routing fields and goes to the
//     worker byte for byte; an answer is never re-encoded;
//   - memory for a body grows with the bytes that come, up to Config.MaxBody; an
//     answer is held whole only for an HTTP/1.0 client and only if its length is
//     not known, up to 8 MiB, else the client is told 502 answer_too_long;
//   - a booking is released exactly once, at the end of its attempt or of the
//     answer's stream, whoever ends it;
//   - a booking whose request relays nothing for two scans of its lease is freed,
//     and the request ended; no other time limits a booking;
//   - a client that goes ends its request in whatever phase that is;
//   - nothing is tried twice once the first byte of an answer has come;
//   - errors to clients hold no address, no cause and no part of the body.
//
// Goroutines: fasthttp's, one a connection, on which everything of a request
// runs; the watchers of client connections; and the scan of leases. Serve waits for
// all of them.
//
//	s, err := frontend.New(frontend.DefaultConfig(), selection, tokenizer, client, modeOf, log, registry)
//	go s.Serve(listener)
//	s.Ready(true)
//	...
//	err = s.Drain(ctx) // Serve returns nil once it is done
package frontend
