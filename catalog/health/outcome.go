package health

// Outcome is how a request to a worker went, as its proxy saw it. That a worker is
// busy (429, or 503 with Retry-After) is no failure, that a caller went away is
// nothing at all: neither is reported.
type Outcome uint8

// The outcomes; all but Success are failures.
const (
	Success       Outcome = iota
	ConnectFailed         // no connection to the worker
	Timeout               // no first byte in time
	ServerError           // an answer of 5xx
	BrokenStream          // the answer broke off
)

// String is the outcome's word.
func (o Outcome) String() string {
	switch o {
	case Success:
		return "success"
	case ConnectFailed:
		return "connect_failed"
	case Timeout:
		return "timeout"
	case ServerError:
		return "server_error"
	case BrokenStream:
		return "broken_stream"
	}
	return "unknown"
}
