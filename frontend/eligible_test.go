package frontend_test

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/plugins/abi"
)

// prefers is a scorer that would have w1 rather than anybody else, and notes
// whether it was offered.
type prefers struct {
	offered atomic.Int64
	faulty  atomic.Bool
}

func (p *prefers) Stage(context.Context, abi.Kind, string, json.RawMessage) (policy.Stage, string, error) {
	return p, "sha256:" + strings.Repeat("0", 64), nil
}

func (*prefers) Columns() policy.ColumnSet { return policy.ColumnSet{} }

func (*prefers) CheckOverrides(map[string]json.RawMessage) ([]string, error) { return nil, nil }

func (*prefers) Close() error { return nil }

func (p *prefers) Score(_ context.Context, t *policy.Table, scores []float64, _ *policy.StageReport) (policy.Verdict, error) {
	for i := range t.Len() {
		scores[i] = 0
		if t.Rows[i].ID == fleet.IDFromName("w1") {
			p.offered.Add(1)
			scores[i] = 100
		}
	}
	if p.faulty.Load() {
		return policy.Answered, &policy.Fault{Stage: "module:prefers", Code: string(abi.ETrap), Reason: "trap", Counts: true}
	}
	return policy.Answered, nil
}

func TestM10_AnEjectedWorkerGetsNothingWhateverAsksForIt(t *testing.T) {
	draws := &policy.PickerSpec{StageSpec: policy.StageSpec{Use: policy.SoftmaxPicker, Config: json.RawMessage(`{"temperature":1}`)}}
	for _, c := range []struct {
		name   string
		picker *policy.PickerSpec
		soft   bool
	}{{"best", nil, false}, {"by draws", draws, false}, {"soft affinity", nil, true}} {
		t.Run(c.name, func(t *testing.T) {
			p := &prefers{}
			w := start(t, sticky, func(s *setup) {
				s.policy, s.stages = scoring("module:prefers"), p
				s.policy.Picker, s.policy.Fallback, s.core.Affinity.Soft = c.picker, "builtin:least-load", c.soft
			})
			var workers [2]*worker
			for i, name := range []string{"w1", "w2"} {
				workers[i] = answering(t, plain("{}"))
				w.join(t, name, workers[i].url)
			}
			bind := w.chat(t, "x-routerd-session", "s", "x-routerd-allow", "w1")
			if by := bind.header.Get("X-Routerd-Worker"); by != "w1" {
				t.Fatalf("bound to %q: %+v", by, bind)
			}
			if err := w.core.SetLifecycle(fleet.IDFromName("w1"), core.Ejected, []string{"probe"}); err != nil {
				t.Fatal(err)
			}
			p.offered.Store(0)
			before := workers[0].seen.Load()
			check := func(what string, headers ...string) {
				for range 10 {
					if got := w.chat(t, headers...); got.status != http.StatusOK || got.header.Get("X-Routerd-Worker") != "w2" {
						t.Fatalf("%s: got %d from %q: %s", what, got.status, got.header.Get("X-Routerd-Worker"), got.body)
					}
				}
			}
			check("the policy")
			check("the session", "x-routerd-session", "s")
			p.faulty.Store(true)
			check("the fallback")
			if by := w.lastDecision(t).Pick.By; by != policy.ByFallback {
				t.Errorf("picked by %q, want the fallback", by)
			}
			checkError(t, w.chat(t, "x-routerd-pin", "w1"), http.StatusServiceUnavailable, "workers_ejected")
			checkError(t, w.chat(t, "x-routerd-allow", "w1"), http.StatusServiceUnavailable, "workers_ejected")
			if n := workers[0].seen.Load() - before; n != 0 {
				t.Errorf("the ejected worker got %d requests", n)
			}
			if n := p.offered.Load(); n != 0 {
				t.Errorf("the policy was offered the ejected worker %d times", n)
			}
		})
	}
}

func TestQ7_LongRequestsOfEachRouteCountAsLoadAndSpread(t *testing.T) {
	const each, workers = 100, 4
	w := start(t)
	done := make(chan struct{})
	names := []string{"w1", "w2", "w3", "w4"}
	for _, name := range names {
		w.join(t, name, serve(t, func(p *peer) {
			for {
				r, ok := p.next()
				if !ok {
					return
				}
				<-done
				if strings.Contains(string(r.body), "stream") {
					p.say(sse + event("1") + event("[DONE]") + lastChunk)
				} else {
					p.say(plain("{}"))
				}
			}
		}).url)
	}
	var all sync.WaitGroup
	kinds := []struct{ path, body string }{
		{chatPath, chatBody},
		{chatPath, `{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]}`},
		{textPath, textBody},
		{textPath, `{"model":"m","stream":true,"prompt":"hi"}`},
	}
	for i := range each * 2 {
		k := kinds[i%len(kinds)]
		all.Go(func() {
			nc := w.raw(t, post(k.path, k.body, "Connection: close"))
			if line, err := bufio.NewReader(nc).ReadString('\n'); err != nil || !strings.Contains(line, " 200 ") {
				t.Errorf("%s: got %q, %v", k.path, line, err)
			}
		})
	}
	eventually(t, "all requests at work", func() bool { return w.active("") == 2*each })
	for _, name := range names {
		const fair = 2 * each / workers
		if n := w.active(name); n < fair*8/10 || n > fair*12/10 {
			t.Errorf("%s has %d of %d requests, want %d within a fifth", name, n, 2*each, fair)
		}
	}
	close(done)
	all.Wait()
	eventually(t, "release", func() bool { return w.active("") == 0 })
}
