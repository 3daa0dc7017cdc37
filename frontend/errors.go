package frontend

import (
	"encoding/json"
	"errors"
	"net"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/upstream"
)

// maxMessage bounds the message of an error in bytes; the JSON around it and
// the escapes in it stay below 1 KiB together.
const maxMessage = 400

// Errors of the frontend itself.
var (
	errNotReady     = errors.New("the router is not ready yet")
	errDraining     = errors.New("the router is shutting down")
	errClientGone   = errors.New("the client has gone")
	errGraceOver    = errors.New("the grace of the shutdown is over")
	errBothFramings = errors.New("Transfer-Encoding and Content-Length must not be given together")
	errConnect      = errors.New("the method CONNECT is not supported")
	errPanic        = errors.New("internal error")
	errTooLong      = errors.New("the answer is too long for an HTTP/1.0 client")
)

// ErrGrace is returned by Drain when the grace ran out before all requests had
// ended; the rest was cut.
var ErrGrace = errors.New("the grace ran out before all requests had ended")

// routeError refuses a path (allow empty) or a method of a path.
type routeError struct{ method, allow string }

// Error is what is wrong.
func (e *routeError) Error() string {
	if e.allow == "" {
		return "unknown path; see GET /v1/models, POST /v1/chat/completions, POST /v1/completions"
	}
	return "method " + strconv.Quote(clip(e.method, 32)) + " is not allowed here; allowed: " + e.allow
}

// modelError refuses a model that was never registered.
type modelError struct{ name string }

// Error names the model, cut.
func (e *modelError) Error() string {
	return "the model " + strconv.Quote(clip(e.name, 80)) + " does not exist"
}

// parseError wraps what fasthttp could not read; its own text may quote the
// request.
type parseError struct{ err error }

// Error is a constant.
func (e *parseError) Error() string { return "the HTTP request cannot be read" }

// Unwrap is the cause.
func (e *parseError) Unwrap() error { return e.err }

// refusalError is a worker's 503 whose body broke off.
type refusalError struct{ err error }

// Error tells the cause.
func (e *refusalError) Error() string { return "refusal broke off: " + e.err.Error() }

// Unwrap is the cause.
func (e *refusalError) Unwrap() error { return e.err }

// answer is an error as the client sees it.
type answer struct {
	status     int
	kind       string // OpenAI's type
	code       string
	param      string
	message    string
	retryAfter time.Duration
	decision   string // id of the decision that ended the request; empty for none
}

// The error types of the OpenAI API that occur here.
const (
	kindRequest  = "invalid_request_error"
	kindNotFound = "not_found_error"
	kindLimit    = "rate_limit_error"
	kindServer   = "server_error"
	kindBusy     = "service_unavailable_error"
)

// codeOverloaded is the code of everything that waiting would help.
const codeOverloaded = "overloaded"

// answerTo is the one place that decides what a client is told. Causes,
// addresses and parts of the request stay out of it.
func answerTo(err error) answer {
	if e, ok := errors.AsType[*core.Error](err); ok {
		return answerToCore(e)
	}
	if _, ok := errors.AsType[*refusalError](err); ok {
		return answer{status: 503, kind: kindBusy, code: "worker_failed", message: "the worker refused the request", retryAfter: retryLater}
	}
	if e, ok := errors.AsType[*upstream.Error](err); ok {
		return answerToWorker(e)
	}
	if e, ok := errors.AsType[*parseError](err); ok {
		return answerToParse(e)
	}
	if e, ok := errors.AsType[*bodyError](err); ok {
		return answer{status: 400, kind: kindRequest, code: "invalid_request", param: e.param, message: e.problem}
	}
	if e, ok := errors.AsType[*headerError](err); ok {
		return answer{status: 400, kind: kindRequest, code: "invalid_header", param: e.field.Field, message: e.Error()}
	}
	if e, ok := errors.AsType[*modelError](err); ok {
		return answer{status: 404, kind: kindNotFound, code: "model_not_found", param: "model", message: e.Error()}
	}
	if e, ok := errors.AsType[*routeError](err); ok {
		if e.allow == "" {
			return answer{status: 404, kind: kindNotFound, code: "not_found", message: e.Error()}
		}
		return answer{status: 405, kind: kindRequest, code: "method_not_allowed", message: e.Error()}
	}
	switch {
	case errors.Is(err, errNotReady):
		return answer{status: 503, kind: kindBusy, code: "not_ready", message: errNotReady.Error(), retryAfter: retryLater}
	case errors.Is(err, errDraining), errors.Is(err, errGraceOver):
		return answer{status: 503, kind: kindBusy, code: "shutting_down", message: errDraining.Error(), retryAfter: retryLater}
	case errors.Is(err, errClientGone):
		return answer{status: 499, kind: kindRequest, code: "client_closed", message: errClientGone.Error()}
	case errors.Is(err, errSilent):
		return answer{status: 504, kind: kindServer, code: "worker_timeout", message: "the answer did not go on in time"}
	case errors.Is(err, errBothFramings):
		return answer{status: 400, kind: kindRequest, code: "invalid_http", message: errBothFramings.Error()}
	case errors.Is(err, errConnect):
		return answer{status: 405, kind: kindRequest, code: "method_not_allowed", message: errConnect.Error()}
	case errors.Is(err, errTooLong):
		return answer{status: 502, kind: kindServer, code: "answer_too_long", message: errTooLong.Error()}
	}
	return answer{status: 500, kind: kindServer, code: "internal_error", message: errPanic.Error()}
}

func answerToCore(e *core.Error) answer {
	a := answer{status: 503, kind: kindBusy, code: string(e.Code), param: e.Field, message: e.Message, retryAfter: e.RetryAfter, decision: e.DecisionID}
	switch e.Code {
	case core.CodeInvalid, core.CodePinUnknown, core.CodePinNotAllowed, core.CodeSessionBound:
		a.status, a.kind = 400, kindRequest
	case core.CodeModelNotFound:
		a.status, a.kind, a.param = 404, kindNotFound, "model"
	case core.CodeConflict:
		a.status, a.kind = 409, kindRequest
	case core.CodeOverloaded, core.CodePinOverloaded, core.CodeQueueFull, core.CodeQueueTimeout:
		// OpenAI's clients know one code for all; the parameter says which.
		a.status, a.kind, a.code, a.param = 429, kindLimit, codeOverloaded, ""
		if e.Code != core.CodeOverloaded {
			a.param = string(e.Code)
		}
		a.retryAfter = max(a.retryAfter, retryLater)
	case core.CodePolicyFailed:
		a.status, a.kind = 500, kindServer
	case core.CodeNotReady, core.CodeNoWorkers, core.CodeWorkersEjected, core.CodeNoCandidates:
		a.retryAfter = max(a.retryAfter, retryLater)
	default:
		a.status, a.kind, a.code, a.message = 500, kindServer, "internal_error", errPanic.Error()
	}
	return a
}

func answerToWorker(e *upstream.Error) answer {
	switch {
	case e.Cancelled:
		return answer{status: 499, kind: kindRequest, code: "client_closed", message: errClientGone.Error()}
	case errors.Is(e, upstream.ErrBadRequest):
		return answer{status: 400, kind: kindRequest, code: "invalid_http", message: "the request cannot be sent on as it is"}
	case errors.Is(e, upstream.ErrClosed):
		return answerTo(errDraining)
	case errors.Is(e, upstream.ErrBreakerOpen):
		return answer{
			status: 503, kind: kindBusy, code: "worker_unreachable", message: "the worker has failed several times and is not called for now",
			retryAfter: max(e.RetryAfter, retryLater),
		}
	case e.Timeout && e.Phase == upstream.PhaseHead:
		return answer{status: 504, kind: kindServer, code: "worker_timeout", message: "the worker did not answer in time"}
	case e.Phase == upstream.PhaseDial:
		return answer{status: 503, kind: kindBusy, code: "worker_unreachable", message: "the worker cannot be reached", retryAfter: retryLater}
	}
	return answer{status: 502, kind: kindServer, code: "worker_failed", message: "the worker failed before it answered"}
}

func answerToParse(e *parseError) answer {
	a := answer{status: 400, kind: kindRequest, code: "invalid_http", message: e.Error()}
	var small *fasthttp.ErrSmallBuffer
	var timeout net.Error
	switch {
	case errors.Is(e.err, fasthttp.ErrBodyTooLarge):
		a.status, a.code, a.message = 413, "body_too_large", "the request body is larger than the router's limit"
	case errors.As(e.err, &small):
		a.status, a.code, a.message = 431, "headers_too_large", "the request's head is larger than "+strconv.Itoa(headLimit)+" bytes"
	case errors.As(e.err, &timeout) && timeout.Timeout():
		a.status, a.code, a.message = 408, "request_timeout", "the request did not arrive in time"
	}
	return a
}

// write makes resp the error's answer, whatever it held before.
func (a answer) write(resp *fasthttp.Response) {
	resp.Reset()
	resp.SetStatusCode(a.status)
	resp.Header.SetContentType("application/json")
	if a.retryAfter > 0 {
		resp.Header.Set(fasthttp.HeaderRetryAfter, strconv.Itoa(int((a.retryAfter+time.Second-1)/time.Second)))
	}
	resp.SetBody(a.body())
}

func (a answer) body() []byte {
	type object struct {
		Message string  `json:"message"`
		Type    string  `json:"type"`
		Param   *string `json:"param"`
		Code    string  `json:"code"`
	}
	o := object{Message: clip(a.message, maxMessage), Type: a.kind, Code: a.code}
	if a.param != "" {
		p := clip(a.param, 64)
		o.Param = &p
	}
	b, err := json.Marshal(map[string]object{"error": o})
	if err != nil || len(b) > 1<<10 { // only a message full of escapes is longer
		o.Message = "the request is refused; the reason is too long to repeat"
		b, _ = json.Marshal(map[string]object{"error": o})
	}
	return b
}

func clip(s string, n int) string {
	if len(s) > n {
		return s[:n] + "…"
	}
	return s
}
