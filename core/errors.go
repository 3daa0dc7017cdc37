package core

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/fleet"
)

// Code says what kind of error a selection ended with. The list is closed;
// surfaces translate it to their own codes in one place.
type Code string

// The codes.
const (
	CodeNotReady       Code = "not_ready"       // the router is not ready, or ending
	CodeInvalid        Code = "invalid"         // a field or an override is not allowed
	CodeModelNotFound  Code = "model_not_found" // no such partition was ever registered
	CodeNoWorkers      Code = "no_workers"      // no worker of the partition is ready
	CodeWorkersEjected Code = "workers_ejected" // workers exist, health took out those that were ready
	CodeOverloaded     Code = "overloaded"      // every eligible worker is over a busy limit
	CodePinOverloaded  Code = "pin_overloaded"  // the pinned worker is over a busy limit
	CodeQueueFull      Code = "queue_full"      // every eligible worker is busy and the class's queue is full
	CodeQueueTimeout   Code = "queue_timeout"   // waited in the queue as long as the class or the deadline allows
	CodePinUnknown     Code = "pin_unknown"     // the pinned worker or rank does not exist
	CodePinNotAllowed  Code = "pin_not_allowed" // the pinned worker is outside the allow-set
	CodeNoCandidates   Code = "no_candidates"   // every ready worker is excluded, by the request or by a filter whose on_empty is fail
	CodeConflict       Code = "conflict"        // the selection id is in use, or the session has moved
	CodeNotFound       Code = "not_found"       // no such reservation or pending selection
	CodeSessionBound   Code = "session_bound"   // the caller's pin or allow-set excludes the worker that the session is bound to
	CodePolicyFailed   Code = "policy_failed"   // a stage faulted and asks to fail
)

// CodeCancelled is what telemetry hears of a selection whose caller gave up before
// there was an answer. No Error has it.
const CodeCancelled Code = "cancelled"

// retryAfter is how soon a caller may try again when no worker is there.
const retryAfter = time.Second

// Error is why a selection failed. Its message holds no address and may be
// shown to the caller.
type Error struct {
	Code    Code
	Message string
	// Field names the request's field for CodeInvalid and the pin codes.
	Field string
	// RetryAfter is how long to wait before trying again; 0 when that would not
	// help.
	RetryAfter time.Duration
	// DecisionID finds the record of the decision that ended the request; empty
	// when it was not a decision that did.
	DecisionID string
	// Err is the cause, such as a *fleet.FieldError or *policy.Fault; may be nil.
	Err error
}

// Error is the message.
func (e *Error) Error() string { return e.Message }

// Unwrap is the cause.
func (e *Error) Unwrap() error { return e.Err }

// fault is what a stage did to end the decision: its fault, or that it has
// dropped every candidate.
func (e *Error) fault() *policy.Fault {
	if f, ok := errors.AsType[*policy.Fault](e.Err); ok {
		return f
	}
	f := &policy.Fault{Reason: ReasonEmptied, Detail: e.Err.Error()}
	if emptied, ok := errors.AsType[*policy.EmptiedError](e.Err); ok {
		f.Stage = emptied.Use
	}
	return f
}

// invalid wraps a refused field.
func invalid(err error) *Error {
	e := &Error{Code: CodeInvalid, Message: err.Error(), Err: err}
	if f, ok := errors.AsType[*fleet.FieldError](err); ok {
		e.Field = f.Field
	}
	return e
}

func unavailable(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...), RetryAfter: retryAfter}
}

// ending says that the core was closed.
func ending() *Error { return unavailable(CodeNotReady, "the router is shutting down") }

// noModel says that no such partition was ever registered.
func noModel(key fleet.PartitionKey) *Error {
	return &Error{Code: CodeModelNotFound, Message: "model " + strconv.Quote(clip(key.Model, 80)) + " does not exist", Field: "model"}
}

// noWorkers says that there are none now.
func noWorkers(key fleet.PartitionKey) *Error {
	return unavailable(CodeNoWorkers, "model %q has no workers", key.Model)
}

func conflict(id string) *Error {
	return &Error{Code: CodeConflict, Message: fmt.Sprintf("selection id %q is in use", clip(id, 80)), Field: "selection_id"}
}

func clip(s string, n int) string {
	if len(s) > n {
		return s[:n] + "…"
	}
	return s
}
