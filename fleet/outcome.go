package fleet

// Outcome is what one request says of its worker's health, as its proxy saw it.
type Outcome uint8

// The outcomes; all but NoOutcome and Success are failures.
const (
	// NoOutcome says nothing of the worker: the client went, the request was at
	// fault (4xx), the worker is full (429, 503), its breaker was open, this machine
	// lacked what a connection needs, or a stream came whole but for its last event
	// or with an error in it, which may be the request's.
	NoOutcome Outcome = iota
	// Success is an answer of 2xx that was relayed to its end.
	Success
	// ConnectFailed is a connection that was not made.
	ConnectFailed
	// Timeout is a time limit that struck while the request was sent, before the
	// head of the answer, or within it.
	Timeout
	// ServerError is an answer of 5xx but 501, 503 and 505, or a redirect, which no
	// engine answers.
	ServerError
	// BrokenStream is a connection that broke before the answer was complete, or
	// an answer that is no proper HTTP.
	BrokenStream
	outcomes
)

// String is the outcome's word; that of NoOutcome is empty.
func (o Outcome) String() string {
	return [outcomes + 1]string{"", "success", "connect_failed", "timeout", "server_error", "broken_stream", "unknown"}[min(o, outcomes)]
}
