package upstream

import (
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"
)

// What an Error may wrap besides the errors of the net package.
var (
	// ErrCancelled says that Call.Cancel ended the call.
	ErrCancelled = errors.New("call cancelled")
	// ErrClosed says that the client has been closed.
	ErrClosed = errors.New("client closed")
	// ErrBadRequest says that the request cannot be sent as it is.
	ErrBadRequest = errors.New("request cannot be sent")
	// ErrMalformed says that the answer is not proper HTTP/1.
	ErrMalformed = errors.New("malformed answer")
	// ErrHeadTooLarge says that the head of the answer exceeds 64 KiB.
	ErrHeadTooLarge = errors.New("head of the answer too large")
	// ErrBodyTooLarge says that a body exceeds the limit of AppendTo.
	ErrBodyTooLarge = errors.New("body of the answer too large")
	// ErrBodyClosed is returned by a Read after Close.
	ErrBodyClosed = errors.New("body closed")
	// ErrBreakerOpen says that nothing was sent, because the worker has failed
	// several times in a row: see Error.RetryAfter.
	ErrBreakerOpen = errors.New("breaker open")
)

// Phase is the part of a call in which it failed.
type Phase uint8

// The phases in their order.
const (
	PhasePrepare Phase = iota // before anything touched the network
	PhaseDial
	PhaseWrite
	PhaseHead
	PhaseBody
	phases
)

// String returns the phase's name: prepare, dial, write, head or body.
func (p Phase) String() string {
	names := [phases]string{"prepare", "dial", "write", "head", "body"}
	if p < phases {
		return names[p]
	}
	return "unknown"
}

// Error is every error of Do and of Body.Read but io.EOF and ErrBodyClosed;
// AppendTo may also return ErrBodyTooLarge.
// Its text holds the worker's address: it is for logs, not for clients.
type Error struct {
	Phase     Phase
	Addr      string // host:port of the worker
	Reused    bool   // the connection had served an earlier call
	BytesRead int64  // bytes of the answer that had arrived, head included
	Timeout   bool   // one of the configured time limits struck
	Cancelled bool   // Call.Cancel was called
	// RetryAfter is, with ErrBreakerOpen, when the worker will be tried again; 0
	// while a trial is under way.
	RetryAfter time.Duration
	Err        error
}

// Error returns phase, address and cause.
func (e *Error) Error() string {
	return fmt.Sprintf("%s, worker %s: %v", e.Phase, e.Addr, e.Err)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Retryable reports whether the request may be tried on another worker: it
// failed on the network or at an open breaker, not by its caller's wish, before
// the first byte of an answer. A worker that ran into a time limit may still work on it: see
// Timeout.
func (e *Error) Retryable() bool {
	if e.Phase == PhasePrepare {
		return errors.Is(e.Err, ErrBreakerOpen)
	}
	return e.BytesRead == 0 && !e.Cancelled && e.Phase != PhaseBody
}

// Local reports whether the call failed for want of something on this machine,
// such as file descriptors, ports or memory: that says nothing of the worker.
func (e *Error) Local() bool {
	var no syscall.Errno
	if !errors.As(e.Err, &no) {
		return false
	}
	switch no {
	case syscall.EMFILE, syscall.ENFILE, syscall.EADDRNOTAVAIL, syscall.ENOBUFS, syscall.ENOMEM:
		return true
	}
	return false
}

// openError is ErrBreakerOpen with the worker's latest failure.
type openError struct{ reason string }

// Error tells both.
func (e *openError) Error() string { return ErrBreakerOpen.Error() + " after " + e.reason }

// Unwrap returns ErrBreakerOpen.
func (e *openError) Unwrap() error { return ErrBreakerOpen }

// stale reports the failure of a reused connection that may have been closed
// by the worker before the request reached it.
func (e *Error) stale() bool {
	return e.Reused && e.Retryable() && !e.Timeout
}

func isTimeout(err error) bool {
	var ne net.Error
	return errors.As(err, &ne) && ne.Timeout()
}
