package catalog_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/catalog"
	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/fleet"
)

// Whoever keeps something of a URL hears when its worker is no more there, also where
// two swap theirs.
func TestWhatWasKnownOfAURLIsNoLongerTrueWhenItsWorkerLeaves(t *testing.T) {
	l := newLedger()
	var left []string
	r := catalog.New(catalog.Parts{Core: l, Listeners: l, Engines: l, Left: func(url string) { left = append(left, strings.TrimPrefix(url, "http://127.0.0.1:")) }}, slog.New(slog.DiscardHandler))
	heard := func(what string, want ...string) {
		t.Helper()
		slices.Sort(left)
		if diff := cmp.Diff(want, left); diff != "" {
			t.Errorf("%s (-want +got)\n%s", what, diff)
		}
		left = nil
	}
	at := func(port string) func(*fleet.Record) {
		return func(r *fleet.Record) { r.URL = "http://127.0.0.1:" + port }
	}
	apply(t, r, record(t, 1, at("1")), record(t, 2, at("2")), record(t, 3, at("3")))
	heard("they come")
	apply(t, r, record(t, 1, at("1"), func(r *fleet.Record) { r.Taints = []string{"x"} }), record(t, 2, at("2")), record(t, 3, at("3")))
	heard("one has another taint")
	apply(t, r, record(t, 1, at("2")), record(t, 2, at("1")), record(t, 3, at("3")))
	heard("two swap", "1", "2")
	apply(t, r, record(t, 1, at("2")), record(t, 4, at("3")))
	heard("one leaves and one is another by now", "1", "3")
	apply(t, r)
	heard("all leave", "2", "3")
	nowhere := func(r *fleet.Record) { r.URL = "" }
	apply(t, r, record(t, 1, nowhere), record(t, 2, nowhere))
	apply(t, r, record(t, 1, at("1")))
	heard("one gets a URL, and one leaves that had none")
}

// A worker that left its source while nobody looked drains no more when it comes again.
func TestADrainEndsAlsoWhenItsWorkerLeftWhileTheRouterWasDown(t *testing.T) {
	file := filepath.Join(t.TempDir(), "drains.json")
	start := func() *catalog.Reconciler {
		drains, err := catalog.OpenDrains(file)
		if err != nil {
			t.Fatal(err)
		}
		l := newLedger()
		return catalog.New(catalog.Parts{Core: l, Listeners: l, Engines: l, Drains: drains}, slog.New(slog.DiscardHandler))
	}
	r := start()
	apply(t, r, record(t, 1), record(t, 2))
	for _, name := range []string{"w1", "w2"} {
		if _, err := r.Drain(name, time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	r = start()
	if err := r.Apply(t.Context(), "another", []fleet.Record{record(t, 3)}); err != nil { // it knows nothing of them
		t.Fatal(err)
	}
	apply(t, r, record(t, 2))
	apply(t, r, record(t, 1), record(t, 2))
	for name, want := range map[string]core.Lifecycle{"w1": core.Ready, "w2": core.Draining} {
		if v, _ := r.Worker(name); v.Lifecycle != want {
			t.Errorf("%s is %s, want %s", name, v.Lifecycle, want)
		}
	}
	if kept, err := os.ReadFile(file); err != nil || strings.Contains(string(kept), `"1":`) || !strings.Contains(string(kept), `"2":`) {
		t.Errorf("kept %s, %v", kept, err)
	}
}

// What the engine tells and the record excludes is not told as unknown.
func TestAReasonSaysThatTheRecordExcludesWhatTheEngineTells(t *testing.T) {
	s := newStage()
	s.engines["http://127.0.0.1:8001"] = told{facts: catalog.Facts{Engine: "vllm", Models: []string{"m"}, BlockSize: 16}}
	r := catalog.New(catalog.Parts{Core: s, Listeners: s, Engines: s}, slog.New(slog.DiscardHandler))
	apply(t, r, record(t, 1, func(r *fleet.Record) {
		r.URL, r.Model, r.BlockSize, r.Adapters = "http://127.0.0.1:8001", "", 0, []fleet.Adapter{{Name: "m"}}
	}))
	v, _ := r.Worker("w1")
	if diff := cmp.Diff([]string{"model_unknown: what the engine says contradicts the record"}, v.Reasons); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
