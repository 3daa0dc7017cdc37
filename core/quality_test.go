package core_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/fleet"
)

// quality is what an event says of how good a choice was.
type quality struct {
	By             policy.By
	Best, Selected int64
	Spread         float64
}

func (w *world) qualityOf(t *testing.T, req *core.Request) quality {
	t.Helper()
	_, err := w.Select(t.Context(), req)
	if err != nil && asError(err) == nil {
		t.Fatal(err)
	}
	e := w.heard.decided[len(w.heard.decided)-1]
	return quality{e.By, e.CachedBest, e.CachedSelected, e.LoadSpread}
}

func TestTelemetryHearsHowGoodAChoiceWas(t *testing.T) {
	w := newWorld(t, use("builtin:least-load"), nil)
	w.join(t, workers("m1", 3)...)
	w.cache.store(fleet.Worker{ID: fleet.IDFromName("w1")}, prompt('A', 64), 16)
	w.cache.store(fleet.Worker{ID: fleet.IDFromName("w2")}, prompt('A', 32), 16)
	pinned := func(kind core.Kind, to string, n int) *core.Request {
		return &core.Request{Kind: kind, Partition: model("m1"), Prompt: core.Prompt{Tokens: prompt('A', n)}, Pin: &core.Pin{Name: to}}
	}
	allowed := func(n int, names ...string) *core.Request {
		return &core.Request{Partition: model("m1"), Prompt: core.Prompt{Tokens: prompt('A', n)}, Allow: names}
	}
	steps := []struct {
		name string
		req  *core.Request
		want quality
	}{
		{"a pin has nothing to choose", pinned(core.Book, "w1", 70), quality{By: policy.ByPin}},
		{"again", pinned(core.Book, "w1", 70), quality{By: policy.ByPin}},
		{"and another", pinned(core.Book, "w2", 70), quality{By: policy.ByPin}},
		// The least loaded has nothing; loads are 2, 1, 0.
		{"the cache is passed over", allowed(70, "w1", "w2", "w3"), quality{policy.ByPolicy, 64, 0, 1}},
		{"only who may serve counts", allowed(70, "w2", "w3"), quality{policy.ByPolicy, 32, 0, 0.5}},
		{"one that may serve", allowed(70, "w1"), quality{policy.ByPolicy, 64, 64, 0}},
		{"a prompt whose hashes are unknown", &core.Request{Partition: model("m1"), Prompt: core.Prompt{Count: 70}}, quality{By: policy.ByPolicy, Spread: 1}},
		{"no answer", allowed(70, "nobody"), quality{}},
	}
	for _, s := range steps {
		t.Run(s.name, func(t *testing.T) {
			if diff := cmp.Diff(s.want, w.qualityOf(t, s.req)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
