package frontend_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/frontend"
)

// overheard notes what the core was asked last.
type overheard struct {
	*core.SelectionCore
	mu   sync.Mutex
	last core.Request
}

func (o *overheard) Select(ctx context.Context, req *core.Request) (*core.Selection, error) {
	o.mu.Lock()
	o.last = *req
	o.mu.Unlock()
	return o.SelectionCore.Select(ctx, req)
}

func (o *overheard) request() core.Request {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.last
}

// overhear starts a frontend with one worker.
func overhear(t *testing.T, change ...func(*setup)) (*world, *overheard, chan request) {
	o := &overheard{}
	w := start(t, append(change, func(s *setup) {
		s.selector = func(c *core.SelectionCore) frontend.Selector {
			o.SelectionCore = c
			return o
		}
	})...)
	wk, got := recording(t)
	w.join(t, "w1", wk.url)
	return w, o, got
}

// identity is what a request says of its session.
type identity struct {
	Flat, FlatParent string
	FlatFinal        bool
	Context          *core.SessionContext
}

// identityOf leaves out what made the agent ask.
func identityOf(r core.Request) identity {
	if r.SessionContext != nil {
		c := *r.SessionContext
		c.Trigger = core.TriggerUnknown
		r.SessionContext = &c
	}
	return identity{r.Session, r.ParentSession, r.SessionFinal, r.SessionContext}
}

func TestA7_TheStructuredSessionIsKeptApartFromTheFlatOne(t *testing.T) {
	w, o, _ := overhear(t)
	structured := func(id, parent string, final bool) *core.SessionContext {
		return &core.SessionContext{ID: id, Parent: parent, Final: final}
	}
	for _, c := range []struct {
		name    string
		headers []string
		want    identity
	}{
		{"none", []string{"x-other", "y"}, identity{}},
		{"structured", []string{"x-routerd-session", " sA "}, identity{Context: structured("sA", "", false)}},
		{"both", []string{"x-session-id", "sB", "x-routerd-session", "sA"}, identity{Flat: "sB", Context: structured("sA", "", false)}},
		{"flat", []string{"x-session-id", "sB"}, identity{Flat: "sB"}},
		{"flat of another router", []string{"x-dynamo-session-id", "sC"}, identity{Flat: "sC"}},
		{"both flat", []string{"x-dynamo-session-id", "sC", "x-session-id", "sB"}, identity{Flat: "sB"}},
		{"empty counts as not sent", []string{"x-session-id", "", "x-dynamo-session-id", "sC", "x-routerd-session", " "}, identity{Flat: "sC"}},
		{"parents", []string{"x-routerd-session", "a", "x-routerd-parent-session", "p"}, identity{Context: structured("a", "p", false)}},
		{"parent of a flat session", []string{"x-session-id", "b", "x-routerd-parent-session", "p"}, identity{Flat: "b", Context: structured("", "p", false)}},
		{"flat parent", []string{"x-session-id", "b", "x-parent-session-id", "p"}, identity{Flat: "b", FlatParent: "p"}},
		{"flat parent of another router", []string{"x-dynamo-session-id", "b", "x-dynamo-parent-session-id", "p"}, identity{Flat: "b", FlatParent: "p"}},
		{"last", []string{"x-routerd-session", "a", "x-routerd-session-final", "true"}, identity{FlatFinal: true, Context: structured("a", "", true)}},
		{"last of a flat one", []string{"x-dynamo-session-id", "b", "x-dynamo-session-final", "1"}, identity{Flat: "b", FlatFinal: true}},
		{"not the last", []string{"x-session-id", "b", "x-routerd-session-final", "false", "x-dynamo-session-final", "true"}, identity{Flat: "b"}},
		{"longest", []string{"x-routerd-session", strings.Repeat("a", 256)}, identity{Context: structured(strings.Repeat("a", 256), "", false)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := w.chat(t, c.headers...); got.status != http.StatusOK {
				t.Fatalf("got %d %s", got.status, got.body)
			}
			if diff := cmp.Diff(c.want, identityOf(o.request())); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if !o.request().Leased {
				t.Error("the core may let the booking expire")
			}
		})
	}
}

const (
	claudeS = "x-claude-code-session-id"
	claudeA = "x-claude-code-agent-id"
	claudeP = "x-claude-code-parent-agent-id"
)

func TestAnAgentsOwnHeadersNameItsSession(t *testing.T) {
	long := strings.Repeat("a", 257)
	for _, c := range []struct {
		name       string
		headers    []string
		id, parent string
	}{
		{"first agent", []string{claudeS, "S"}, "S", ""},
		{"agent of it", []string{claudeS, "S", claudeA, "A"}, "S/A", "S"},
		{"agent of an agent", []string{claudeS, "S", claudeA, "A", claudeP, "P"}, "S/A", "S/P"},
		{"agent without a session", []string{claudeA, "A", claudeP, "P"}, "A", "P"},
		{"parent of nobody", []string{claudeP, "P"}, "", ""},
		{"codex", []string{"x-codex-window-id", "T:3"}, "T", ""},
		{"codex without a window's number", []string{"x-codex-window-id", "T"}, "T", ""},
		{"codex of another", []string{"x-codex-window-id", "T:0", "x-codex-parent-thread-id", "U"}, "T", "U"},
		{"parent alone", []string{"x-codex-parent-thread-id", "U"}, "", "U"},
		{"too long", []string{claudeS, long}, "", ""},
		{"too long together", []string{claudeS, long[:200], claudeA, long[:200]}, "", long[:200]},
		{"not printable", []string{claudeS, "é", claudeA, "A"}, "A", ""},
		{"of both", []string{claudeS, "S", "x-codex-window-id", "T:1", "x-codex-parent-thread-id", "U"}, "S", ""},
		{"ours wins whole", []string{claudeS, "S", claudeA, "A", "x-routerd-session", "a"}, "a", ""},
		{"our parent wins", []string{claudeS, "S", claudeA, "A", "x-routerd-parent-session", "p"}, "S/A", "p"},
		{"a flat one stands back", []string{claudeS, "S", "x-session-id", "b"}, "S", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, o, _ := overhear(t)
			if got := w.chat(t, c.headers...); got.status != http.StatusOK {
				t.Fatalf("got %d %s", got.status, got.body)
			}
			if got := o.request().SessionContext; got == nil || got.ID != c.id || got.Parent != c.parent || got.Final {
				t.Errorf("got %+v, want session %q of %q", got, c.id, c.parent)
			}
		})
	}
}

// TestAgentsOfDifferentSessionsNeverShareAName: whatever the parts hold.
func TestAgentsOfDifferentSessionsNeverShareAName(t *testing.T) {
	w, o, _ := overhear(t)
	seen := map[string][2]string{}
	for _, c := range [][2]string{{"a/b", "c"}, {"a", "b/c"}, {"a%2Fb", "c"}, {"a%252Fb", "c"}} {
		if got := w.chat(t, claudeS, c[0], "x-claude-code-agent-id", c[1]); got.status != http.StatusOK {
			t.Fatalf("got %d %s", got.status, got.body)
		}
		id := o.request().SessionContext.ID
		if other, twice := seen[id]; twice {
			t.Errorf("%v and %v are both session %q", other, c, id)
		}
		seen[id] = c
	}
}

func TestOnlyTrustedHeadersAreHonouredAndAnAgentsOwnAreAdvice(t *testing.T) {
	w, o, _ := overhear(t, func(s *setup) { s.frontend.TrustHeaders = false })
	for _, headers := range [][]string{
		{"x-routerd-session", "a", "x-routerd-parent-session", "p", "x-routerd-session-final", "true"},
		{"x-session-id", "a", "x-parent-session-id", "p"},
		{"x-dynamo-session-id", "a", "x-dynamo-parent-session-id", "p", "x-dynamo-session-final", "true"},
		{"x-routerd-session-final", "perhaps"}, // not even read
	} {
		if got := w.chat(t, headers...); got.status != http.StatusOK {
			t.Fatalf("got %d %s", got.status, got.body)
		}
		if diff := cmp.Diff(identity{}, identityOf(o.request())); diff != "" {
			t.Errorf("%v (-want +got):\n%s", headers, diff)
		}
	}
	w.chat(t, claudeS, "S", "x-routerd-session", "a", "x-session-id", "b", "x-routerd-session-final", "true")
	want := identity{Context: &core.SessionContext{ID: "S", Advice: true, AgentHeaders: map[string]string{claudeS: "S"}}}
	if diff := cmp.Diff(want, identityOf(o.request())); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestWhoSpeaksLastMadeTheAgentAsk(t *testing.T) {
	w, o, _ := overhear(t)
	for messages, want := range map[string]core.Trigger{
		`[{"role":"system"},{"role":"user","content":"hi"}]`:      core.TriggerUserMessage,
		`[{"role":"user"} , {"content":[{}],"role":"tool"} ]`:     core.TriggerToolResult,
		`[{"role":"function"}]`:                                   core.TriggerToolResult,
		`[{"role":"user"},{"role":"assistant","content":"role"}]`: core.TriggerOther,
		`[{"role":7}]`:           core.TriggerOther,
		`[{"content":"[user]"}]`: core.TriggerUnknown,
		`[1,2]`:                  core.TriggerUnknown,
		`[]`:                     core.TriggerUnknown,
		`"user"`:                 core.TriggerUnknown,
	} {
		body := `{"model":"m","messages":` + messages + `}`
		w.do(t, "POST", chatPath, body, claudeS, "S")
		if got := o.request().SessionContext.Trigger; got != want {
			t.Errorf("%s: got %d, want %d", messages, got, want)
		}
	}
	w.do(t, "POST", textPath, textBody, claudeS, "S")
	if got := o.request().SessionContext.Trigger; got != core.TriggerUnknown {
		t.Errorf("of a text: got %d", got)
	}
}

func TestAgentHeadersAreInputsOfPoliciesAndGoOnToTheWorker(t *testing.T) {
	w, o, got := overhear(t)
	body := strings.Repeat("v", 16<<10)
	for _, c := range []struct {
		name string
		sent []string
		want map[string]string
	}{
		{"all four kinds", []string{
			"X-Claude-Code-Agent-Id", "A", "x-codex-turn-state", " t ", "X-OpenAI-Subagent", "review",
			"x-openai-memgen-request", "true", "x-openai-other", "o", "x-claude-codec", "c",
		}, map[string]string{claudeA: "A", "x-codex-turn-state": "t", "x-openai-subagent": "review", "x-openai-memgen-request": "true"}},
		{"several times", []string{"x-codex-a", "1", "x-codex-b", "3", "x-codex-a", " 2"}, map[string]string{"x-codex-a": "1, 2", "x-codex-b": "3"}},
		{"longest", []string{"x-codex-a", body}, map[string]string{"x-codex-a": body}},
		{"too long counts as not sent", []string{"x-codex-a", body + "v", "x-codex-b", "2"}, map[string]string{"x-codex-b": "2"}},
		{"empty counts as not sent", []string{"x-codex-a", "", "x-codex-b", "2"}, map[string]string{"x-codex-b": "2"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if a := w.chat(t, c.sent...); a.status != http.StatusOK {
				t.Fatalf("got %d %s", a.status, a.body)
			}
			if diff := cmp.Diff(c.want, o.request().SessionContext.AgentHeaders); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			r := wait(t, "the worker's request", got)
			for i := 0; i < len(c.sent); i += 2 {
				if len(r.values(c.sent[i])) == 0 {
					t.Errorf("the worker did not get %s", c.sent[i])
				}
			}
		})
	}
}

func TestAgentHeadersAreBounded(t *testing.T) {
	w, o, _ := overhear(t)
	var many []string
	for i := range 70 {
		many = append(many, fmt.Sprintf("x-codex-%d", i), "v")
	}
	var long []string
	for i := range 5 {
		long = append(long, fmt.Sprintf("x-codex-%d", i), strings.Repeat("v", 6<<10))
	}
	for n, sent := range map[int][]string{64: many, 5: long} {
		if a := w.chat(t, sent...); a.status != http.StatusOK {
			t.Fatalf("got %d %s", a.status, a.body)
		}
		if got := len(o.request().SessionContext.AgentHeaders); got != n {
			t.Errorf("got %d headers, want %d", got, n)
		}
	}
}

func TestOurSessionHeadersNeverReachAWorker(t *testing.T) {
	w, _, got := overhear(t)
	w.chat(t, "x-routerd-session", "a", "x-routerd-session-final", "true", "x-session-id", "b", claudeS, "S")
	r := wait(t, "the worker's request", got)
	for name, want := range map[string]int{"x-routerd-session": 0, "x-routerd-session-final": 0, "x-session-id": 1, claudeS: 1} {
		if n := len(r.values(name)); n != want {
			t.Errorf("the worker got %s %d times, want %d", name, n, want)
		}
	}
}
