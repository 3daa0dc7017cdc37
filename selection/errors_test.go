package selection_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/core/queue"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/internal/httpapi"
	"github.com/routerd/routerd/selection"
)

func TestEachErrorHasItsStatusAndCode(t *testing.T) {
	of := func(code core.Code) error { return &core.Error{Code: code, Message: "why", Field: "f"} }
	wrongType := httpapi.Invalid("f", "is a text", "a number")
	wrongType.WrongType = true
	for _, c := range []struct {
		err    error
		status int
		code   string
	}{
		{of(core.CodeInvalid), 400, "invalid"},
		{of(core.CodePinNotAllowed), 400, "invalid"},
		{of(core.CodeSessionBound), 400, "invalid"},
		{of(core.CodePinUnknown), 404, "not_found"},
		{of(core.CodeNotFound), 404, "not_found"},
		{of(core.CodeConflict), 409, "conflict"},
		{of(core.CodeModelNotFound), 503, "unavailable"},
		{of(core.CodeNotReady), 503, "unavailable"},
		{of(core.CodeNoWorkers), 503, "unavailable"},
		{of(core.CodeWorkersEjected), 503, "unavailable"},
		{of(core.CodeNoCandidates), 503, "unavailable"},
		{of(core.CodeOverloaded), 429, "overloaded"},
		{of(core.CodePinOverloaded), 429, "overloaded"},
		{of(core.CodeQueueFull), 429, "overloaded"},
		{of(core.CodeQueueTimeout), 429, "overloaded"},
		{of(core.CodePolicyFailed), 500, "internal"},
		{of("of tomorrow"), 500, "internal"},
		{&fleet.FieldError{Field: "f", Value: "v", Allowed: "w"}, 400, "invalid"},
		{wrongType, 422, "invalid"},
		{context.Canceled, 499, "unavailable"},
		{errors.New("http://u:CANARY@h"), 500, "internal"},
	} {
		status, body, retry := selection.Classify(fmt.Errorf("around: %w", c.err))
		if status != c.status || !strings.Contains(body, `"code":"`+c.code+`"`) || strings.Contains(body, "CANARY") {
			t.Errorf("%v: got %d %s", c.err, status, body)
		}
		if waits := status == 429 || status == 503; waits != (retry >= time.Second) {
			t.Errorf("%v: Retry-After %v", c.err, retry)
		}
		if e, ok := errors.AsType[*core.Error](c.err); ok && e.Code != "of tomorrow" && !strings.Contains(body, `"step":"`+string(e.Code)+`"`) {
			t.Errorf("%v: the core's word is not in %s", c.err, body)
		}
	}
}

func TestAFullQueueTellsItsLimit(t *testing.T) {
	for kind, word := range map[string]string{queue.KindRequests: "requests", queue.KindTokens: "raw_isl_tokens", queue.KindCachedTokens: "cached_tokens"} {
		err := &core.Error{Code: core.CodeQueueFull, RetryAfter: 3 * time.Second, Err: &queue.FullError{Class: "c", Kind: kind, Current: 2, Limit: 1}}
		_, body, retry := selection.Classify(err)
		if want := `"details":{"step":"queue_full","policy_class":"c","limit_kind":"` + word + `","current":2,"limit":1}`; !strings.Contains(body, want) || retry != 3*time.Second {
			t.Errorf("got %s after %v, want %s", body, retry, want)
		}
	}
}

func TestRow_AFullQueueIs429WithItsLimit(t *testing.T) {
	w := newWorld(t, options{core: func(c *core.Config) {
		queueing(c)
		c.Queue.Classes[0].Limits.Requests = 0
	}})
	w.join(t, worker(1))
	w.post(t, "/select_and_reserve", aBooking).want(t, 200)
	for _, path := range []string{"/select", "/select_and_reserve"} {
		a := w.post(t, path, aBooking).want(t, 429)
		if a.at(t, "error.details.limit_kind") != "requests" || a.at(t, "error.details.policy_class") != "default" || a.header.Get("Retry-After") == "" {
			t.Errorf("got %s %v", a.body, a.header)
		}
	}
	w.post(t, "/select", `{"advisory":true,`+nine+`}`).want(t, 200)
}
