package app_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/internal/testkit"
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
	b := newSelectionBench(t)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = b.reconciler.Run(ctx) })
	defer running.Wait()
	defer cancel()
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
		if _, err := b.reconciler.Undrain(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	testkit.Until(t, "both serve again", func() bool {
		return cmp.Equal(map[string]string{"1": "schedulable", "2": "schedulable"}, b.lifecycles(t))
	})
	b.want(t, 200, post, "/select", `{`+onFirst+`}`)
}

// caches has an engine cache tokens.
func caches(t *testing.T, e *sim.Engine, tokens []int) {
	t.Helper()
	body := asText(t, map[string]any{"model": "m", "prompt": tokens, "max_tokens": 1})
	resp, err := http.Post(e.URL()+"/v1/completions", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if err := resp.Body.Close(); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("status %d, %v", resp.StatusCode, err)
	}
}

// With other taints alone a worker keeps its index, its bookings and its listener. The
// engine repeats no events, so that an index which was dropped would stay empty.
func TestRow_UpsertWithOtherTaintsOnlyKeepsTheIndex(t *testing.T) {
	e := simtest.Start(t, func(c *sim.Config) { c.Model, c.ReplayListen = "m", "" })
	a := start(t, withService(t))
	defer func() { _ = a.Stop(t.Context()) }()
	put := func(taints string) string {
		body := fmt.Sprintf(`{"worker_id":1,"model_name":"m","endpoint":%q,"block_size":16,"kv_events_endpoint":%q,"taints":[%s]}`, e.URL(), e.EventEndpoints()[0], taints)
		_, text := callService(t, a, post, "/workers", "", body)
		return text
	}
	if got := put(`"a"`); !strings.Contains(got, `"lifecycle":"schedulable"`) {
		t.Fatal(got)
	}
	prompt := make([]int, 64)
	held := func() string {
		return serviceText(t, a, post, "/overlap_scores", fmt.Sprintf(`{"model_name":"m","token_ids":%s}`, asText(t, prompt)))
	}
	const whole = `"device_blocks":4`
	from := 0
	testkit.Until(t, "a prompt is held", func() bool { // the subscription is there once an event has come through
		from += 1000
		for i := range prompt {
			prompt[i] = from + i
		}
		caches(t, e, prompt)
		return strings.Contains(held(), whole)
	})
	serviceText(t, a, post, "/select_and_reserve", `{"selection_id":"r","model_name":"m","token_ids":[1,2,3,4]}`)

	if got := put(`"b","c"`); !strings.Contains(got, `"taints":["b","c"]`) || !strings.Contains(held(), whole) {
		t.Errorf("put again: %s\nheld: %s", got, held())
	}
	if got := serviceText(t, a, patch, "/workers/1", `{"taints":["d"]}`); !strings.Contains(got, `"taints":["d"]`) || !strings.Contains(held(), whole) {
		t.Errorf("changed: %s\nheld: %s", got, held())
	}
	serviceText(t, a, del, "/reservations/r", "")
	// Its events still come: the same listener goes on, for a new one would have missed some.
	for i := range prompt {
		prompt[i] = 500_000 + i
	}
	caches(t, e, prompt)
	testkit.Until(t, "the next prompt is held", func() bool { return strings.Contains(held(), whole) })

	// It bites: a worker that lost its endpoint meanwhile comes back with nothing.
	if status := askService(t, a, post, "/workers", "", `{"worker_id":1,"model_name":"m","taints":["d"]}`); status != http.StatusCreated {
		t.Errorf("status %d", status)
	}
	put(`"d"`)
	if got := held(); !strings.Contains(got, `"device_blocks":0`) {
		t.Errorf("held by a worker that came anew: %s", got)
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
