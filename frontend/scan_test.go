package frontend_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/valyala/fasthttp"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/frontend"
	"github.com/routerd/routerd/upstream"
)

// texts are seeds of JSON and what is nearly so.
var texts = []string{
	`{}`, `[]`, ` {"a":1} `, `{"a":[1,2,{"b":null}],"c":"\u00e9\n"}`, `{"a":1,}`, `{"a"}`, `{a:1}`, `[1,]`, `[,1]`, `"x`, `"\x"`, `"\u12"`,
	`01`, `-`, `-0`, `1.`, `1.5e+3`, `1e`, `.5`, `+1`, `tru`, `true`, `nulll`, `null null`, `{"a":1}}`, `[[]`, `]`, `{]`, `[}`, "\"\n\"", "\"\x7f\xff\"", ``, ` `, `{"":{}}`, "\ufeff{}",
	`[1 2]`, `{"a":1 "b":2}`, `{"a":1,"a":2}`, `[{},[],""]`, `1e400`, `{"a":tru}`,
}

func FuzzJSONIsWhatTheStandardLibraryTakes(f *testing.F) {
	for _, s := range texts {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if want, got := json.Valid(text), frontend.ValidJSON(text); got != want && !strings.Contains(string(text), strings.Repeat("[", 100)) {
			if strings.Count(string(text), "[")+strings.Count(string(text), "{") <= 512 {
				t.Errorf("%q: valid %t, want %t", text, got, want)
			}
		}
	})
}

func FuzzScanReadsWhatTheStandardLibraryReads(f *testing.F) {
	for _, s := range []string{
		chatBody, `{"model":"m"}`, `{"mod\u0065l":"\u006d\ud83d","messages":[{"a":"}"}]}`, `{"model":"a","model":"b"}`, `{"model":1}`,
		`{"messages":[],"model":"x"} `, `{"Model":"x"}`, `{"model":"x","temperature":1e999,"max_tokens":-5,"stream":"true"}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		model, messages, err := frontend.Scan(body)
		if err != nil {
			return
		}
		var want map[string]json.RawMessage
		if err := json.Unmarshal(body, &want); err != nil {
			t.Fatalf("%q was accepted: %v", body, err)
		}
		var name string
		if err := json.Unmarshal(want["model"], &name); err != nil {
			t.Fatalf("%q: model %v", body, err)
		}
		if name != strings.ToValidUTF8(model, "\ufffd") && len([]rune(name)) != len([]rune(model)) {
			t.Errorf("%q: model %q, want %q", body, model, name)
		}
		if diff := cmp.Diff(string(want["messages"]), string(messages)); diff != "" {
			t.Errorf("%q: %s", body, diff)
		}
	})
}

func TestNestingIsBounded(t *testing.T) {
	deep := func(n int) []byte { return []byte(strings.Repeat("[", n) + strings.Repeat("]", n)) }
	if !frontend.ValidJSON(deep(512)) {
		t.Error("512 levels are refused")
	}
	if frontend.ValidJSON(deep(513)) {
		t.Error("513 levels are accepted")
	}
}

func TestTokenIDsAreReadStrictly(t *testing.T) {
	for raw, want := range map[string][]uint32{
		`[1,2,3]`: {1, 2, 3}, "[ 0 ,\n4294967295 ]": {0, 1<<32 - 1},
	} {
		if got, ok := frontend.IDs([]byte(raw)); !ok || !cmp.Equal(got, want) {
			t.Errorf("%s: %v", raw, got)
		}
	}
	for _, raw := range []string{``, `[]`, `[-1]`, `[1.0]`, `[1e3]`, `["1"]`, `[4294967296]`, `[99999999999999999999999]`, `[1,[2]]`, `[1`, `1`} {
		if got, ok := frontend.IDs([]byte(raw)); ok {
			t.Errorf("%s: %v", raw, got)
		}
	}
}

func TestEveryErrorHasOneAnswer(t *testing.T) {
	coreError := func(code core.Code) error {
		return fmt.Errorf("x: %w", &core.Error{Code: code, Message: "why", Field: "f"})
	}
	worker := func(phase upstream.Phase, timeout bool) error {
		return &upstream.Error{Phase: phase, Addr: "10.0.0.1:80", Timeout: timeout, Err: errors.New("dial tcp 10.0.0.1:80: refused")}
	}
	for _, c := range []struct {
		err    error
		status int
		code   string
		retry  bool
	}{
		{coreError(core.CodeNotReady), 503, "not_ready", true},
		{coreError(core.CodeInvalid), 400, "invalid", false},
		{coreError(core.CodeModelNotFound), 404, "model_not_found", false},
		{coreError(core.CodeNoWorkers), 503, "no_workers", true},
		{coreError(core.CodeWorkersEjected), 503, "workers_ejected", true},
		{coreError(core.CodeOverloaded), 429, "overloaded", true},
		{coreError(core.CodePinOverloaded), 429, "overloaded", true},
		{coreError(core.CodeQueueFull), 429, "overloaded", true},
		{coreError(core.CodeQueueTimeout), 429, "overloaded", true},
		{coreError(core.CodeSessionBound), 400, "session_bound", false},
		{coreError(core.CodePinUnknown), 400, "pin_unknown", false},
		{coreError(core.CodePinNotAllowed), 400, "pin_not_allowed", false},
		{coreError(core.CodeNoCandidates), 503, "no_candidates", true},
		{coreError(core.CodeConflict), 409, "conflict", false},
		{coreError(core.CodePolicyFailed), 500, "policy_failed", false},
		{coreError("other"), 500, "internal_error", false},
		{worker(upstream.PhaseDial, false), 503, "worker_unreachable", true},
		{worker(upstream.PhaseDial, true), 503, "worker_unreachable", true},
		{worker(upstream.PhaseWrite, false), 502, "worker_failed", false},
		{worker(upstream.PhaseHead, false), 502, "worker_failed", false},
		{worker(upstream.PhaseHead, true), 504, "worker_timeout", false},
		{worker(upstream.PhaseBody, false), 502, "worker_failed", false},
		{frontend.Refusal(worker(upstream.PhaseBody, true)), 503, "worker_failed", true},
		{&upstream.Error{Cancelled: true, Err: upstream.ErrCancelled}, 499, "client_closed", false},
		{&upstream.Error{Err: upstream.ErrClosed}, 503, "shutting_down", true},
		{&upstream.Error{Err: upstream.ErrBadRequest}, 400, "invalid_http", false},
		{frontend.Parse(fasthttp.ErrBodyTooLarge), 413, "body_too_large", false},
		{frontend.Parse(&fasthttp.ErrSmallBuffer{}), 431, "headers_too_large", false},
		{frontend.Parse(fmt.Errorf("read: %w", timeout{})), 408, "request_timeout", false},
		{frontend.Parse(errors.New("SECRET")), 400, "invalid_http", false},
		{frontend.ErrNotReady, 503, "not_ready", true},
		{frontend.ErrDraining, 503, "shutting_down", true},
		{frontend.ErrGraceOver, 503, "shutting_down", true},
		{frontend.ErrClientGone, 499, "client_closed", false},
		{frontend.ErrTooLong, 502, "answer_too_long", false},
		{frontend.ErrUnknownPath, 404, "not_found", false},
		{errors.New("10.0.0.1 said SECRET"), 500, "internal_error", false},
	} {
		got := frontend.AnswerTo(c.err)
		if got.Status != c.status || got.Code != c.code || got.RetryAfter != c.retry || got.Message == "" || got.Type == "" {
			t.Errorf("%v: got %+v, want %d %s", c.err, got, c.status, c.code)
		}
		if strings.Contains(got.Message, "10.0.0.1") || strings.Contains(got.Message, "SECRET") {
			t.Errorf("%v: tells %q", c.err, got.Message)
		}
	}
}

// timeout is a time limit that struck.
type timeout struct{}

func (timeout) Error() string   { return "timeout" }
func (timeout) Timeout() bool   { return true }
func (timeout) Temporary() bool { return true }
