//go:build e2e

package e2e_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/routerd/routerd/sim"
	"github.com/routerd/routerd/sim/simtest"
)

// adapted is a body that asks an adapter of model m.
func adapted(name string) map[string]any {
	return map[string]any{"model": name, "prompt": "hello", "max_tokens": 2}
}

func TestL1_AdapterThatNobodyHas(t *testing.T) {
	d := openDesk(t)
	r := startRouter(t, untold+desks(1, "m", d))
	a, err := newCrowd(t, r).ask(t.Context(), "/v1/completions", adapted("ghost"))
	if err != nil {
		t.Fatal(err)
	}
	refused(t, "the adapter ghost", a, http.StatusNotFound, "model_not_found", "model")
	if got := d.prompts(); len(got) != 0 {
		t.Errorf("the worker saw %v, want nothing", got)
	}
}

func TestL2_AdapterOnAWorkerThatIsExcluded(t *testing.T) {
	list := []*desk{openDesk(t), openDesk(t), openDesk(t)}
	var static string
	for i, d := range list {
		static += fmt.Sprintf("  - {id: %d, name: w%d, url: %q, model: m", i+1, i+1, d.url)
		if i == 0 {
			static += ", adapters: [{name: sql}]"
		}
		static += "}\n"
	}
	r := startRouter(t, untold+static)
	c := newCrowd(t, r)
	for range 5 {
		if got := c.sendTo(t, "/v1/completions", adapted("sql")).served(t); got != "w1" {
			t.Errorf("a request for the adapter was served by %s, want w1", got)
		}
	}
	for _, h := range []struct{ header, value, param string }{{"x-routerd-allow", "w2,w3", "allow"}, {"x-routerd-pin", "w2", "pin"}} {
		a, err := c.ask(t.Context(), "/v1/completions", adapted("sql"), h.header, h.value)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %s: %d %s", h.header, h.value, a.status, a.body)
		refused(t, h.header, a, http.StatusServiceUnavailable, "no_workers", h.param)
	}
	if got := []int{len(list[0].prompts()), len(list[1].prompts()), len(list[2].prompts())}; got[0] != 5 || got[1]+got[2] != 0 {
		t.Errorf("the workers saw %v requests, want 5, 0 and 0", got)
	}
	r.quiet("m")
}

// lora has model m with two engines that load adapters, the second of which has
// one from the start.
func lora(t *testing.T, load time.Duration) string {
	t.Helper()
	s := "models: {m: {block_size: 16}}\nlora: {slots: 2, manage: [{name: sql, model: m, path: /lora/sql}]}\nworkers:\n  static:\n"
	for i := range 2 {
		name := fmt.Sprint("w", i+1)
		e := simtest.Start(t, func(c *sim.Config) {
			c.Name, c.Model, c.AnswerTokens, c.Events, c.AdapterUpdates, c.AdapterLoad = name, "m", 2, false, true, load
			if i == 1 {
				c.Adapters = []string{"sql"}
			}
		})
		s += fmt.Sprintf("  - {id: %d, name: %s, url: %q, model: m, engine: vllm}\n", i+1, name, e.URL())
	}
	return s
}

// adapters counts the managed adapters by state.
func (r *router) adapters(state string) float64 {
	r.t.Helper()
	return sum(r.metrics(), "routerd_lora_adapters", fmt.Sprintf("state=%q", state))
}

func TestL3_AdapterThatIsBeingLoaded(t *testing.T) {
	t.Parallel() // its times are long beside a crowd's delays
	r := startRouter(t, lora(t, 3*time.Second))
	c := newCrowd(t, r)
	eventually(t, soon, func() error {
		if got := r.adapters("loaded"); got != 1 {
			return fmt.Errorf("%v adapters are loaded, want that of w2", got)
		}
		return nil
	})
	// While there is traffic for it alone, it is loaded on the other worker too.
	during, loading := 0, false
	eventually(t, 3*soon, func() error {
		a, err := c.ask(t.Context(), "/v1/completions", adapted("sql"))
		if err != nil {
			t.Fatal(err)
		}
		got := servedBy(t, a)
		if r.adapters("loaded") == 2 {
			return nil
		}
		if got != "w2" {
			t.Errorf("while w1 had not loaded it a request was served by %s, want w2", got)
		}
		if r.adapters("loading") == 1 {
			loading = true
			during++
		}
		return fmt.Errorf("w1 has not loaded the adapter")
	})
	if !loading {
		t.Error("w1 was never seen to load the adapter")
	}
	t.Logf("%d requests went to w2 while w1 loaded the adapter", during)
	used := map[string]int{}
	for range 40 {
		used[c.sendTo(t, "/v1/completions", adapted("sql")).served(t)]++
	}
	if used["w1"] < 5 || used["w2"] < 5 {
		t.Errorf("once both have it requests went to %v, want both used", used)
	}
	r.quiet("m")
}
