package httpapi

import (
	"encoding/json"
	"regexp"
	"strings"
	"time"

	"github.com/routerd/routerd/plugins/abi"
)

// Code says what kind of error an answer is. The list is closed: the constants
// below and the ABI's host codes.
type Code string

// The codes.
const (
	CodeUnauthorized Code = "unauthorized"
	CodeForbidden    Code = "forbidden"
	CodeNotFound     Code = "not_found"
	CodeConflict     Code = "conflict"
	CodeInvalid      Code = "invalid"
	CodeUnsupported  Code = "unsupported"
	CodeTooLarge     Code = "too_large"
	CodeRateLimited  Code = "rate_limited"
	CodeUnavailable  Code = "unavailable"
	CodeOverloaded   Code = "overloaded"
	CodeInternal     Code = "internal"
)

// Codes lists the closed list with the HTTP status that each has unless the
// transport has a closer one (405, 408, 431).
func Codes() map[Code]int {
	all := map[Code]int{
		CodeUnauthorized: 401,
		CodeForbidden:    403,
		CodeNotFound:     404,
		CodeConflict:     409,
		CodeInvalid:      400,
		CodeUnsupported:  400,
		CodeTooLarge:     413,
		CodeRateLimited:  429,
		CodeUnavailable:  503,
		CodeOverloaded:   503,
		CodeInternal:     500,
	}
	for _, c := range abi.HostCodes() {
		all[Code(c.Code)] = 422
	}
	return all
}

// Details place an error: the step that refused, the offending item, and what
// would have been accepted.
type Details struct {
	Step    string `json:"step,omitempty"`
	Item    string `json:"item,omitempty"`
	Allowed string `json:"allowed,omitempty"`
	*Limit         // of a queue that is full; nil for all else
}

// Limit is what a class of the queue allows, and what waits in it already.
type Limit struct {
	PolicyClass string `json:"policy_class"`
	LimitKind   string `json:"limit_kind"` // requests, raw_isl_tokens, cached_tokens
	Current     int64  `json:"current"`
	Limit       int64  `json:"limit"`
}

// Failure is an error with its place in an API.
type Failure struct {
	Code    Code    `json:"code"`
	Message string  `json:"message"`
	Details Details `json:"details"`
	Status  int     `json:"-"` // where it is not the code's own
	// WrongType tells that a body's field has another JSON type than it may have.
	WrongType bool `json:"-"`
	// RetryAfter is how long to wait before trying again; 0 when that would not help.
	RetryAfter time.Duration `json:"-"`
	Logged     bool          `json:"-"` // the log has the whole error
}

// Error is the message.
func (f *Failure) Error() string { return f.Message }

// HTTPStatus is the status of the answer.
func (f *Failure) HTTPStatus() int {
	if f.Status != 0 {
		return f.Status
	}
	return Codes()[f.Code]
}

// Body is the answer as JSON.
func (f *Failure) Body() []byte {
	b, err := json.Marshal(map[string]*Failure{"error": f})
	if err != nil {
		b = []byte(`{"error":{"code":"internal","message":"the error cannot be written","details":{}}}`)
	}
	return b
}

// Invalid refuses an item of a request in words; allowed may be empty.
func Invalid(item, what, allowed string) *Failure {
	message := item + ": " + what
	if allowed != "" {
		message += "; allowed: " + allowed
	}
	return &Failure{Code: CodeInvalid, Message: message, Details: Details{Step: "check", Item: item, Allowed: allowed}}
}

// Internal is an error that only the log explains.
func Internal() *Failure {
	return &Failure{Code: CodeInternal, Message: "the router could not do this; its log says why", Logged: true}
}

// Clip bounds how much of the caller's text an answer or log line repeats.
func Clip(s string) string {
	const most = 80
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}

// userInfo is the user name and password of a URL.
var userInfo = regexp.MustCompile(`://[^/@\s"]*@`)

// Redact takes credentials out of URLs that an error repeats.
func Redact(s string) string {
	if !strings.Contains(s, "@") {
		return s
	}
	return userInfo.ReplaceAllString(s, "://…@")
}
