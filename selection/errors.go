package selection

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/core/queue"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/internal/httpapi"
)

// retryLater is the least Retry-After.
const retryLater = time.Second

// statusGone is nginx's word for a caller that did not wait for its answer.
const statusGone = 499

// refusal is what an error of the core becomes.
type refusal struct {
	core   core.Code
	code   httpapi.Code
	status int
	retry  bool // waiting may help
}

// refusals are what the core's errors become. What is not here is internal.
func refusals() []refusal {
	const invalid, unavailable, overloaded = httpapi.CodeInvalid, httpapi.CodeUnavailable, httpapi.CodeOverloaded
	return []refusal{
		{core.CodeInvalid, invalid, 400, false},
		{core.CodePinNotAllowed, invalid, 400, false},
		{core.CodeSessionBound, invalid, 400, false},
		{core.CodePinUnknown, httpapi.CodeNotFound, 404, false},
		{core.CodeNotFound, httpapi.CodeNotFound, 404, false},
		{core.CodeConflict, httpapi.CodeConflict, 409, false},
		{core.CodeModelNotFound, unavailable, 503, true},
		{core.CodeNotReady, unavailable, 503, true},
		{core.CodeNoWorkers, unavailable, 503, true},
		{core.CodeWorkersEjected, unavailable, 503, true},
		{core.CodeNoCandidates, unavailable, 503, true},
		{core.CodeOverloaded, overloaded, 429, true},
		{core.CodePinOverloaded, overloaded, 429, true},
		{core.CodeQueueFull, overloaded, 429, true},
		{core.CodeQueueTimeout, overloaded, 429, true},
		{core.CodePolicyFailed, httpapi.CodeInternal, 500, false},
	}
}

// limitKinds are Dynamo's words for the limits of a queue.
var limitKinds = map[string]string{
	queue.KindRequests: "requests", queue.KindTokens: "raw_isl_tokens", queue.KindCachedTokens: "cached_tokens",
}

// classify is the one place where errors become answers.
func classify(err error) *httpapi.Failure {
	f := classified(err)
	if f.WrongType {
		f.Status = fasthttp.StatusUnprocessableEntity
	}
	f.Message, f.Details.Item = httpapi.Redact(f.Message), httpapi.Redact(f.Details.Item)
	return f
}

func classified(err error) *httpapi.Failure {
	if f, ok := errors.AsType[*httpapi.Failure](err); ok {
		return f
	}
	if e, ok := errors.AsType[*core.Error](err); ok {
		return ofCore(e)
	}
	if e, ok := errors.AsType[*fleet.FieldError](err); ok {
		return &httpapi.Failure{Code: httpapi.CodeInvalid, Message: err.Error(), Details: httpapi.Details{Step: "check", Item: e.Field, Allowed: e.Allowed}}
	}
	switch {
	case errors.Is(err, errStopped):
		return &httpapi.Failure{Code: httpapi.CodeUnavailable, Message: errStopped.Error(), RetryAfter: retryLater}
	case errors.Is(err, errCallerGone), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return &httpapi.Failure{Code: httpapi.CodeUnavailable, Message: errCallerGone.Error(), Status: statusGone}
	}
	return httpapi.Internal()
}

// ofCore keeps the core's own word for an error as the step.
func ofCore(e *core.Error) *httpapi.Failure {
	all := refusals()
	i := slices.IndexFunc(all, func(r refusal) bool { return r.core == e.Code })
	if i < 0 {
		return httpapi.Internal()
	}
	is := all[i]
	f := &httpapi.Failure{
		Code: is.code, Status: is.status, Message: e.Message, RetryAfter: e.RetryAfter, Details: httpapi.Details{Step: string(e.Code), Item: e.Field},
	}
	if is.retry {
		f.RetryAfter = max(f.RetryAfter, retryLater)
	}
	if field, ok := errors.AsType[*fleet.FieldError](e); ok {
		f.Details.Allowed = field.Allowed
	}
	if full, ok := errors.AsType[*queue.FullError](e); ok {
		f.Details.Limit = &httpapi.Limit{PolicyClass: full.Class, LimitKind: limitKinds[full.Kind], Current: full.Current, Limit: full.Limit}
	}
	return f
}
