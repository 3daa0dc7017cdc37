//go:build e2e

package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/sim"
	"github.com/routerd/routerd/sim/simtest"
)

// overlaps is what /overlap_scores says of the ranks.
func (s *service) overlaps(t *testing.T, prompt []int) string {
	t.Helper()
	got := read[struct {
		Workers json.RawMessage `json:"workers"`
	}](t, s.says(t, http.StatusOK, "POST", "/overlap_scores", wants(prompt)))
	return string(got.Workers)
}

// known are the blocks that a router knows of each worker.
func (r *router) known(model string) map[string]int {
	r.t.Helper()
	n := map[string]int{}
	for _, v := range r.partition(model).Ranks {
		n[fmt.Sprint(v.Name, "/", v.Rank)] = len(v.KV.Hashes["device"])
	}
	return n
}

// A router that starts takes the index of its peer over: it knows the same before
// any event has come, from engines that repeat none, and later events go on from
// there.
func TestAStartTakesTheIndexOfAPeerOver(t *testing.T) {
	const prompts = 12
	engines := map[string]*sim.Engine{}
	static := "workers:\n  static:\n"
	for i := range 2 {
		name := fmt.Sprint("w", i+1)
		e := simtest.Start(t, func(c *sim.Config) { c.Name, c.Model, c.ReplayListen, c.Blocks = name, "m", "", 200 })
		engines[name] = e
		static += fmt.Sprintf("  - {id: %d, name: %s, url: %q, model: m, kv_events: %s}\n", i+1, name, e.URL(), bodyOf(t, e.EventEndpoints()))
	}
	const model = "models: {m: {block_size: 16}}\n"
	first := startService(t, model+static)
	fill := func(from int) {
		t.Helper()
		for i := range prompts {
			fills(t, engines[fmt.Sprint("w", i%2+1)], 0, tokens(10_000*(from+i), 16*(i+1)+5))
		}
	}
	check := func(when string, s *service) {
		t.Helper()
		t.Log(when)
		for name, e := range engines {
			sameAsEngine(t, s.router, "m", name, e)
		}
	}
	// The subscription is there once an event has come through.
	for name, e := range engines {
		n := 0
		eventually(t, soon, func() error {
			n++
			fills(t, e, 0, tokens(5_000_000+1000*n, 16))
			if first.known("m")[name+"/0"] == 0 {
				return fmt.Errorf("nothing is known of %s", name)
			}
			return nil
		})
		engineJSON(t, e, "POST", "/sim/faults", map[string]any{"kind": "reset_prefix_cache"}, nil)
	}
	fill(1)
	check("the first router, from events", first)

	second := startService(t, model+static+fmt.Sprintf("index: {peers: [\"http://127.0.0.77:9\", %q]}\n", first.at))
	eventually(t, soon, func() error { // once it knows the workers; no event comes
		if diff := cmp.Diff(first.known("m"), second.known("m")); diff != "" {
			return fmt.Errorf("blocks that are known after the start (-first +second)\n%s", diff)
		}
		return nil
	})
	same := func(from int) {
		t.Helper()
		some := false
		for i := range prompts {
			prompt := tokens(10_000*(from+i), 16*(i+1)+5)
			want, got := first.overlaps(t, prompt), second.overlaps(t, prompt)
			if want != got {
				t.Errorf("prompt %d: overlaps\n%s at the first\n%s at the second", from+i, want, got)
			}
			some = some || strings.Contains(got, fmt.Sprintf(`"device_blocks":%d`, i+1))
		}
		if !some {
			t.Error("no prompt is held by anybody")
		}
	}
	same(1)
	if got := second.books(t, wants(tokens(20_000, 16*2+5))); got.Worker != 2 || got.Overlap.GPU != 32 {
		t.Errorf("selected %+v, want worker 2, which holds 32 tokens", got)
	}

	// More than the engines have room for: what was taken over is dropped again.
	fill(101)
	fill(201)
	fill(301)
	check("the second router, after more events", second)
	check("the first router", first)
	same(301)
	if log := second.log.String(); !strings.Contains(log, "a peer did not hand its index over") || !strings.Contains(log, "index taken over from a peer") {
		t.Error("the log tells neither of the peer that is away nor of the index that was taken over")
	}
	dump := read[map[string]struct {
		BlockSize int               `json:"block_size"`
		Events    []json.RawMessage `json:"events"`
	}](t, second.says(t, http.StatusOK, "GET", "/dump", nil))
	if part := dump["m:default"]; part.BlockSize != 16 || len(part.Events) == 0 {
		t.Errorf("m:default is dumped with block size %d and %d events", part.BlockSize, len(part.Events))
	}
}
