package frontend_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/frontend"
	"github.com/routerd/routerd/upstream"
)

func TestE1_AWorkersRefusalsPassUnchanged(t *testing.T) {
	for _, status := range []int{400, 401, 404, 413, 422, 429, 500, 503} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			body := fmt.Sprintf(`{"error":{"message":"no %d"}}`, status)
			w := start(t)
			wk := answering(t, fmt.Sprintf("HTTP/1.1 %d Whatever\r\nContent-Type: application/json\r\nRetry-After: 3\r\nX-Why: yes\r\nContent-Length: %d\r\n\r\n%s", status, len(body), body))
			w.join(t, "w1", wk.url)
			other := answering(t, plain("{}"))
			w.join(t, "w2", other.url)
			got := w.chat(t, "x-routerd-pin", "w1")
			if got.status != status || got.body != body || got.header.Get("Retry-After") != "3" || got.header.Get("X-Why") != "yes" {
				t.Errorf("%+v", got)
			}
			if status < 500 {
				for range 4 {
					w.chat(t)
				}
				if n := wk.seen.Load() + other.seen.Load(); n != 5 {
					t.Errorf("%d attempts for 5 requests", n)
				}
			}
		})
	}
}

// checkError asserts the form of a router-made error.
func checkError(t *testing.T, got answer, status int, code string) {
	t.Helper()
	if got.status != status {
		t.Errorf("status %d, want %d: %s", got.status, status, got.body)
	}
	if ct := got.header.Get("Content-Type"); ct != "application/json" {
		t.Errorf("Content-Type %q", ct)
	}
	if len(got.body) > 1<<10 {
		t.Errorf("%d bytes", len(got.body))
	}
	var e struct {
		Error struct{ Message, Type, Code string }
	}
	if err := json.Unmarshal([]byte(got.body), &e); err != nil || e.Error.Message == "" || e.Error.Type == "" || e.Error.Code != code {
		t.Errorf("want code %s, got %s (%v)", code, got.body, err)
	}
	if strings.Contains(got.body, "SECRET") || strings.Contains(got.body, "127.0.0.1") {
		t.Errorf("tells too much: %s", got.body)
	}
}

// rawAnswer sends bytes and reads one answer.
func (w *world) rawAnswer(t *testing.T, send string) answer {
	t.Helper()
	nc := w.raw(t, "")
	go func() { _, _ = io.WriteString(nc, send) }()
	b, err := io.ReadAll(nc)
	if len(b) == 0 {
		t.Fatalf("no answer: %v", err)
	}
	head, body, _ := strings.Cut(string(b), "\r\n\r\n")
	got := answer{header: http.Header{}, body: body}
	for i, line := range strings.Split(head, "\r\n") {
		if i == 0 {
			fmt.Sscanf(line, "HTTP/1.1 %d", &got.status)
			continue
		}
		k, v, _ := strings.Cut(line, ":")
		got.header.Add(k, strings.TrimSpace(v))
	}
	return got
}

func TestE2_EveryErrorOfTheRouterHasTheOpenAIForm(t *testing.T) {
	w := start(t, func(s *setup) {
		s.frontend.MaxBody = 1 << 20
		s.upstream.FirstByteTimeout = 50 * time.Millisecond
	})
	w.join(t, "stuck", serve(t, func(p *peer) { p.next(); p.closedByRouter() }).url)
	for _, c := range []struct {
		name, send string
		status     int
		code       string
	}{
		{"bad JSON", post(chatPath, `{"model":"SECRET`), 400, "invalid_request"},
		{"not an object", post(chatPath, `["SECRET"]`), 400, "invalid_request"},
		{"trailing text", post(chatPath, chatBody+"SECRET"), 400, "invalid_request"},
		{"empty", post(chatPath, ""), 400, "invalid_request"},
		{"too deep", post(chatPath, strings.Repeat(`{"a":`, 100000)), 400, "invalid_request"},
		{"unknown model", post(chatPath, `{"model":"nope","messages":"SECRET"}`), 404, "model_not_found"},
		{"bad header", post(chatPath, chatBody, "x-routerd-priority: high"), 400, "invalid_header"},
		{"worker's time limit", post(chatPath, chatBody), 504, "worker_timeout"},
		{"too large body", post(chatPath, strings.Repeat("SECRET", 1<<20)), 413, "body_too_large"},
		{"too large headers", "GET / HTTP/1.1\r\nHost: r\r\nX-A: " + strings.Repeat("SECRET", 10<<10) + "\r\n\r\n", 431, "headers_too_large"},
		{"unknown path", "GET /v2/SECRET HTTP/1.1\r\nHost: r\r\n\r\n", 404, "not_found"},
		{"wrong method", "PUT " + chatPath + " HTTP/1.1\r\nHost: r\r\nContent-Length: 0\r\n\r\n", 405, "method_not_allowed"},
		{"part of a method", "POS " + chatPath + " HTTP/1.1\r\nHost: r\r\nContent-Length: 0\r\n\r\n", 405, "method_not_allowed"},
		{"CONNECT", "CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:443\r\n\r\n", 405, "method_not_allowed"},
		{"malformed", "SECRET\r\n\r\n", 400, "invalid_http"},
		{"two lengths", "POST " + chatPath + " HTTP/1.1\r\nHost: r\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nSECRET", 400, "invalid_http"},
		{"no host", "GET /v1/models HTTP/1.1\r\n\r\n", 400, "invalid_http"},
	} {
		t.Run(c.name, func(t *testing.T) {
			send := strings.Replace(c.send, "Host: r\r\n", "Host: r\r\nConnection: close\r\n", 1)
			got := w.rawAnswer(t, send)
			checkError(t, got, c.status, c.code)
			if c.status == 405 && c.name != "CONNECT" && got.header.Get("Allow") != "POST" {
				t.Errorf("Allow is %q", got.header.Get("Allow"))
			}
		})
	}
	if s := w.log.String(); strings.Contains(s, "SECRET") {
		t.Errorf("the log holds a part of a request: %s", s)
	}
}

func TestE4_FourWaysToHaveNoWorker(t *testing.T) {
	w := start(t, func(s *setup) { s.core.Overload.PrefillTokens = 1 })
	wk, free := holding(t)
	for name, model := range map[string]string{"w1": "m1", "w2": "m2", "w3": "m3", "w4": "m3"} {
		w.join(t, name, wk.url, func(r *fleet.Record) { r.Model = model })
	}
	if err := w.core.Commit(core.Change{Removals: []fleet.WorkerID{fleet.IDFromName("w1")}}); err != nil {
		t.Fatal(err)
	}
	if err := w.core.SetLifecycle(fleet.IDFromName("w2"), core.Ejected, []string{"probe"}); err != nil {
		t.Fatal(err)
	}
	body := func(model string) string { return fmt.Sprintf(`{"model":%q,"messages":[%40s]}`, model, "") }
	var held sync.WaitGroup
	for range 2 { // workers of m3 get as much as they can bear
		held.Go(func() {
			if got := w.do(t, "POST", chatPath, body("m3")); got.status != 200 {
				t.Errorf("got %+v", got)
			}
		})
	}
	eventually(t, "both workers at work", func() bool { return wk.seen.Load() == 2 })
	for _, c := range []struct {
		model, code string
		status      int
	}{{"nope", "model_not_found", 404}, {"m1", "no_workers", 503}, {"m2", "workers_ejected", 503}, {"m3", "overloaded", 429}} {
		got := w.do(t, "POST", chatPath, body(c.model))
		checkError(t, got, c.status, c.code)
		if c.status != 404 {
			checkRetryAfter(t, got)
		} else if got.header.Get("Retry-After") != "" {
			t.Errorf("%s: Retry-After %q", c.model, got.header.Get("Retry-After"))
		}
	}
	got := w.do(t, "POST", chatPath, body("m3"), "x-routerd-pin", "w3")
	checkError(t, got, 429, "overloaded")
	checkParam(t, got, "pin_overloaded")
	free <- struct{}{}
	free <- struct{}{}
	held.Wait()
}

func TestE5_TheOnlyWorkerRefusesConnections(t *testing.T) {
	w := start(t)
	w.join(t, "w1", "http://127.0.0.77:9")
	begun := time.Now()
	got := w.chat(t, "X-Request-Id", "id-77")
	if took := time.Since(begun); took > time.Second {
		t.Errorf("took %v", took)
	}
	if got.status != 502 && got.status != 503 {
		t.Errorf("%+v", got)
	}
	checkError(t, got, got.status, "worker_unreachable")
	for _, text := range []string{"127.0.0.77", "dial", "refused", "connect:"} {
		if strings.Contains(got.body, text) {
			t.Errorf("the body holds %q: %s", text, got.body)
		}
	}
	found := false
	for line := range strings.SplitSeq(w.log.String(), "\n") {
		found = found || strings.Contains(line, "127.0.0.77:9") && strings.Contains(line, "refused") && strings.Contains(line, "id-77")
	}
	if !found {
		t.Errorf("no log line with address, error and request id in:\n%s", w.log)
	}
	if n := w.active(""); n != 0 {
		t.Errorf("%d bookings left", n)
	}
}

// A 503 for which nobody was called has a line of its own, which says who is not ready
// and why. What a request itself rules out is no news to the operator.
func TestE5_ALineSaysWhoIsNotReady(t *testing.T) {
	w := start(t)
	w.join(t, "w1", "http://127.0.0.77:9")
	for id, l := range map[string]core.Lifecycle{"id-starts": core.Incomplete, "id-ejected": core.Ejected} {
		if err := w.core.SetLifecycle(fleet.IDFromName("w1"), l, []string{"starting: health_refused"}); err != nil {
			t.Fatal(err)
		}
		got := w.chat(t, "X-Request-Id", id)
		if got.status != 503 || strings.Contains(got.body, "127.0.0.77") || strings.Contains(got.body, "refused") {
			t.Errorf("%s: got %d, want 503 without the address and the reason: %s", id, got.status, got.body)
		}
		if lines := w.warnings(id); len(lines) != 1 || !strings.Contains(lines[0], "127.0.0.77:9") || !strings.Contains(lines[0], "health_refused") {
			t.Errorf("%s: the log says %q, want one line with address and reason", id, lines)
		}
	}
	w.join(t, "w2", "http://127.0.0.77:9")
	checkError(t, w.chat(t, "X-Request-Id", "id-allows", "x-routerd-allow", "w9"), 503, "no_workers")
	if err := w.core.Commit(core.Change{Removals: []fleet.WorkerID{fleet.IDFromName("w1"), fleet.IDFromName("w2")}}); err != nil {
		t.Fatal(err)
	}
	checkError(t, w.chat(t, "X-Request-Id", "id-empty"), 503, "no_workers")
	for id, want := range map[string]int{"id-allows": 0, "id-empty": 1} {
		if lines := w.warnings(id); len(lines) != want {
			t.Errorf("%s: the log says %q, want %d lines", id, lines, want)
		}
	}
}

// warnings are those of the log that have a text.
func (w *world) warnings(text string) (lines []string) {
	for line := range strings.Lines(w.log.String()) {
		if strings.Contains(line, "level=WARN") && strings.Contains(line, text) {
			lines = append(lines, line)
		}
	}
	return lines
}

func TestQ9_PinsAndAllowSetsAreStrict(t *testing.T) {
	w := start(t)
	wk := map[string]*worker{}
	for _, name := range []string{"w1", "w2"} {
		wk[name] = answering(t, plain("{}"))
		w.join(t, name, wk[name].url)
	}
	if err := w.core.SetLifecycle(fleet.IDFromName("w2"), core.Draining, nil); err != nil {
		t.Fatal(err)
	}
	id := fleet.IDFromName("w1").String()
	for _, c := range []struct {
		name    string
		headers []string
		status  int
		code    string
	}{
		{"pin unknown", []string{"x-routerd-pin", "w9"}, 400, "pin_unknown"},
		{"pinned rank unknown", []string{"x-routerd-pin", "w1;rank=1"}, 400, "pin_unknown"},
		{"allowed one is draining", []string{"x-routerd-allow", "w2"}, 503, "no_workers"},
		{"pin outside the allow-set", []string{"x-routerd-pin", "w1", "x-routerd-allow", "w2"}, 400, "pin_not_allowed"},
		{"pin by name", []string{"x-routerd-pin", "w1"}, 200, ""},
		{"pin by id and rank", []string{"x-routerd-pin", id + "; rank=0"}, 200, ""},
		{"allow by name and id", []string{"x-routerd-allow", "w2, " + id}, 200, ""},
	} {
		got := w.chat(t, c.headers...)
		if c.status != 200 {
			checkError(t, got, c.status, c.code)
		} else if got.status != 200 || got.header.Get("X-Routerd-Worker") != "w1" {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
	if n := wk["w2"].seen.Load(); n != 0 {
		t.Errorf("w2 saw %d requests", n)
	}
}

// failing is a selector whose every answer is an error of the core.
type failing struct {
	frontend.Selector
	err *core.Error
}

func (f failing) Select(context.Context, *core.Request) (*core.Selection, error) { return nil, f.err }

func TestADecisionThatFailsTheRequestIsNamedInTheAnswer(t *testing.T) {
	for id, e := range map[string]*core.Error{
		"r.1": {Code: core.CodePolicyFailed, Message: "why", DecisionID: "r.1"},
		"r.2": {Code: core.CodeNoCandidates, Message: "why", DecisionID: "r.2"},
		"":    {Code: core.CodeNoWorkers, Message: "why"}, // no decision was made
	} {
		w := start(t, func(s *setup) {
			s.selector = func(c *core.SelectionCore) frontend.Selector { return failing{c, e} }
		})
		w.join(t, "w1", answering(t, plain("{}")).url)
		got := w.chat(t)
		checkError(t, got, map[bool]int{true: 500, false: 503}[e.Code == core.CodePolicyFailed], string(e.Code))
		if have := got.header.Get("X-Routerd-Decision"); have != id {
			t.Errorf("%s: got the decision %q, want %q", e.Code, have, id)
		}
	}
}

func TestU1_OverloadSaysWhyAndWhenToComeBack(t *testing.T) {
	for _, c := range []struct {
		err               core.Error
		param, retryAfter string
	}{
		{core.Error{Code: core.CodeOverloaded, Field: "pin"}, "", "1"},
		{core.Error{Code: core.CodePinOverloaded, RetryAfter: 1500 * time.Millisecond, Field: "pin"}, "pin_overloaded", "2"},
		{core.Error{Code: core.CodeQueueFull, RetryAfter: time.Millisecond}, "queue_full", "1"},
		{core.Error{Code: core.CodeQueueTimeout, RetryAfter: time.Minute}, "queue_timeout", "60"},
	} {
		c.err.Message = "why"
		w := start(t, func(s *setup) {
			s.selector = func(sel *core.SelectionCore) frontend.Selector { return failing{sel, &c.err} }
		})
		w.join(t, "w1", answering(t, plain("{}")).url)
		got := w.chat(t)
		checkError(t, got, http.StatusTooManyRequests, "overloaded")
		var e struct {
			Error struct{ Type, Param string }
		}
		if err := json.Unmarshal([]byte(got.body), &e); err != nil || e.Error.Param != c.param || e.Error.Type != "rate_limit_error" {
			t.Errorf("%s: got %s", c.err.Code, got.body)
		}
		if v := got.header.Get("Retry-After"); v != c.retryAfter {
			t.Errorf("%s: Retry-After %q, want %s", c.err.Code, v, c.retryAfter)
		}
	}
}

func TestBadRoutingHeadersNameHeaderValueAndWhatIsAllowed(t *testing.T) {
	w := start(t)
	w.join(t, "w1", answering(t, plain("{}")).url)
	long := strings.Repeat("x", 300)
	for _, c := range [][2]string{
		{"x-routerd-pin", ";rank=1"},
		{"x-routerd-pin", "w1;rank=-1"},
		{"x-routerd-pin", "w1;rang=1"},
		{"x-routerd-pin", ""},
		{"x-routerd-allow", "w1,,w2"},
		{"x-routerd-allow", ""},
		{"x-routerd-session", long},
		{"x-routerd-session-final", "perhaps"},
		{"x-session-id", long},
		{"x-parent-session-id", "é"},
		{"x-dynamo-session-final", "yes"},
		{"x-routerd-parent-session", long},
		{"x-routerd-class", long},
		{"x-routerd-tenant", "é"},
		{"x-routerd-priority", "1.5"},
		{"x-routerd-priority", "2147483648"},
		{"x-routerd-override", "[]"},
		{"x-routerd-override", `{"a":1,"a":2}`},
	} {
		got := w.chat(t, c[0], c[1])
		checkError(t, got, 400, "invalid_header")
		if !strings.Contains(got.body, c[0]) || !strings.Contains(got.body, "allowed") {
			t.Errorf("%v: %s", c, got.body)
		}
	}
	got := w.chat(t, "x-routerd-pin", "w1", "x-routerd-pin", "w2")
	checkError(t, got, 400, "invalid_header")
	got = w.chat(t, "x-routerd-override", `{"nope":1}`)
	checkError(t, got, 400, "invalid")
	untrusting := start(t, func(s *setup) { s.frontend.TrustHeaders = false })
	untrusting.join(t, "w1", answering(t, plain("{}")).url)
	if got := untrusting.chat(t, "x-routerd-pin", "w9", "x-routerd-priority", "high"); got.status != 200 {
		t.Errorf("headers count although they are not trusted: %+v", got)
	}
}

func TestConfigNamesTheFieldThatIsOutOfRange(t *testing.T) {
	for field, change := range map[string]func(*setup){
		"max_body":      func(s *setup) { s.frontend.MaxBody = 0 },
		"grace":         func(s *setup) { s.frontend.Grace = -1 },
		"forwarded_for": func(s *setup) { s.frontend.ForwardedFor = "x" },
		"retries":       func(s *setup) { s.frontend.Retries = 11 },
		"half_close":    func(s *setup) { s.frontend.HalfClose = "" },
	} {
		su := setup{upstream: upstream.DefaultConfig()}
		su.frontend.MaxBody, su.frontend.ForwardedFor, su.frontend.HalfClose = 1<<20, "append", "abort"
		change(&su)
		err := su.frontend.Validate()
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
}
