package app_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/routerd/routerd/catalog/api"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/internal/app"
	"github.com/routerd/routerd/selection"
	"github.com/routerd/routerd/sim"
	"github.com/routerd/routerd/sim/simtest"
)

// lifecycles are what GET /workers tells, by worker id.
func (b *selectionBench) lifecycles(t *testing.T) map[string]string {
	t.Helper()
	status, text := b.raw(t, get, "/workers", "")
	var all []struct {
		ID        json.Number `json:"worker_id"`
		Lifecycle string
	}
	if err := json.Unmarshal(text, &all); err != nil || status != http.StatusOK {
		t.Fatalf("%d %s: %v", status, text, err)
	}
	out := map[string]string{}
	for _, w := range all {
		out[w.ID.String()] = w.Lifecycle
	}
	return out
}

// A worker that is told to drain says so, gets no new requests and keeps those that it has.
func TestRow_AWorkerThatDrainsIsDraining(t *testing.T) {
	b, _ := overIndex(t, false)
	b.want(t, 201, post, "/workers", `{"worker_id":1,`+whole+`}`)
	b.want(t, 201, post, "/workers", `{"worker_id":2,"endpoint":"http://127.0.0.1:20002","block_size":4,"kv_events_endpoint":"tcp://127.0.0.1:22002"}`)
	const onFirst = `"token_ids":[1,2,3,4],"pinned_worker":{"worker_id":1,"dp_rank":0}`
	b.want(t, 200, post, "/select_and_reserve", `{"selection_id":"r",`+onFirst+`}`)
	if _, err := b.reconciler.Drain("1", time.Minute); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"1": "draining", "2": "schedulable"}, b.lifecycles(t)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	wantFields(t, b.want(t, 200, get, "/ready", ""), map[string]any{"ready": true, "schedulable_workers": json.Number("1")})
	for range 8 {
		wantFields(t, b.want(t, 200, post, "/select", `{"token_ids":[1,2,3,4]}`), map[string]any{"worker_id": json.Number("2")})
	}
	b.want(t, 503, post, "/select", `{`+onFirst+`}`)
	if _, text := b.raw(t, get, "/loads", ""); strings.Contains(string(text), `"worker_id":1`) {
		t.Errorf("the loads have it: %s", text)
	}
	wantFields(t, b.want(t, 200, patch, "/workers/1", `{"taints":["a"]}`), map[string]any{"lifecycle": "draining"})
	b.want(t, 200, post, "/reservations/r/prefill_complete", "")
	b.want(t, 200, del, "/reservations/r", "")

	if _, err := b.reconciler.Drain("2", time.Minute); err != nil {
		t.Fatal(err)
	}
	b.want(t, 503, get, "/ready", "")
	b.want(t, 503, post, "/select", `{"token_ids":[1]}`)
	for _, id := range []string{"1", "2"} {
		if _, err := b.reconciler.Undrain(id); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "both serve again", func() bool {
		return cmp.Equal(map[string]string{"1": "schedulable", "2": "schedulable"}, b.lifecycles(t))
	})
	b.want(t, 200, post, "/select", `{`+onFirst+`}`)
}

// overIndex is a selection service over a running fleet with real indexes; streams
// tells whether it listens to engines.
func overIndex(t *testing.T, streams bool) (*selectionBench, *app.Fleet) {
	t.Helper()
	f := fleetOf(t, streams, nil)
	source, err := api.Open(filepath.Join(t.TempDir(), "workers.json"), f.Reconciler)
	if err != nil {
		t.Fatal(err)
	}
	parts := selection.Parts{Core: f.Core, Workers: app.SelectionWorkers(f.Reconciler, source), Index: noDump{}}
	srv, err := selection.New(selection.DefaultConfig(), parts, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	return &selectionBench{url: serveSelection(t, srv), core: f.Core, reconciler: f.Reconciler, source: source}, f
}

// With other taints alone a worker keeps its index, its bookings and its listener. The
// engine repeats no events, so that an index which was dropped would stay empty.
func TestRow_UpsertWithOtherTaintsOnlyKeepsTheIndex(t *testing.T) {
	e := simtest.Start(t, func(c *sim.Config) { c.Model, c.ReplayListen = "m", "" })
	b, f := overIndex(t, true)
	record := func(taints string, blockSize int) string {
		return fmt.Sprintf(`{"worker_id":1,"model_name":"m","endpoint":%q,"block_size":%d,"kv_events_endpoint":%q,"taints":[%s]}`, e.URL(), blockSize, e.EventEndpoints()[0], taints)
	}
	wantFields(t, b.want(t, 201, post, "/workers", record(`"a"`, 16)), map[string]any{"lifecycle": "schedulable"})
	one := fleet.Worker{ID: 1}
	from := 0
	until(t, "an event has come through", func() bool {
		from += 1000
		fill(t, e, 0, tokensFrom(from, 64))
		return f.Blocks(oneModel, one) > 0
	})
	held := func() string {
		_, text := b.raw(t, post, "/overlap_scores", fmt.Sprintf(`{"model_name":"m","token_ids":%s}`, asText(t, tokensFrom(from, 64))))
		return string(text)
	}
	until(t, "the prompt is held", func() bool { return strings.Contains(held(), `"device_blocks":4`) })
	blocks, before := f.Blocks(oneModel, one), held()
	b.want(t, 200, post, "/select_and_reserve", `{"selection_id":"r","model_name":"m","token_ids":[1,2,3,4]}`)

	listens := f.Listens.Load()
	wantFields(t, b.want(t, 201, post, "/workers", record(`"b","c"`, 16)), map[string]any{"lifecycle": "schedulable", "taints": texts("b", "c")})
	wantFields(t, b.want(t, 200, patch, "/workers/1", `{"taints":["d"]}`), map[string]any{"taints": texts("d")})
	if got := f.Blocks(oneModel, one); got != blocks || held() != before {
		t.Errorf("%d blocks are known, want %d as before\n%s\n%s", got, blocks, before, held())
	}
	if l, u := f.Listens.Load()-listens, f.Unlistens.Load(); l != 0 || u != 0 {
		t.Errorf("%d listeners began and %d ended, want none", l, u)
	}
	fill(t, e, 0, tokensFrom(from+500, 64))
	until(t, "events still come", func() bool { return f.Blocks(oneModel, one) > blocks })
	b.want(t, 200, del, "/reservations/r", "")

	// It bites: what is more than taints does drop it.
	b.want(t, 201, post, "/workers", `{"worker_id":1,"model_name":"m","taints":["d"]}`)
	b.want(t, 201, post, "/workers", record(`"d"`, 16))
	if got := f.Blocks(oneModel, one); got != 0 {
		t.Errorf("%d blocks are known of a worker that came anew, want none", got)
	}
}

func asText(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
