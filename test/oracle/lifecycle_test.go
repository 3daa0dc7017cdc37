//go:build oracle

package oracle_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
)

// bookKept selects under an id and books that selection afterwards.
func (f *fleet) bookKept(ctx context.Context) error {
	d, err := f.draw(ctx)
	if err != nil || d == nil {
		return err
	}
	body, among := d.body, d.among
	if _, settled := among.only(); !settled && len(among.theirs) > 0 {
		f.pin(body, &among)
	}
	f.name(body)
	if f.chance(20) {
		body["advisory"] = true
	}
	if err := f.choose(ctx, "POST /select, kept", "/select", body, among); err != nil {
		return err
	}
	kept := map[string]any{"selection_id": body["selection_id"], "model_name": f.model, "routing_group": f.group}
	x, y, _, err := f.same(ctx, "POST /reservations, kept", http.MethodPost, "/reservations", kept, whole)
	if err != nil {
		return err
	}
	if x.status == http.StatusCreated && y.status == http.StatusCreated {
		f.booked(body, y)
	}
	_, _, _, err = f.same(ctx, "POST /reservations, kept, again", http.MethodPost, "/reservations", kept, whole)
	return err
}

// bookExplicitly books a worker of the caller's choice, there or not.
func (f *fleet) bookExplicitly(ctx context.Context) error {
	w := f.anyWorker()
	tokens := f.prompt()
	body := f.withPrompt(tokens)
	f.name(body)
	body["worker_id"] = w.id
	if w.start > 0 || f.chance(70) {
		body["dp_rank"] = w.ranks[f.rng.IntN(len(w.ranks))].rank
	}
	if f.chance(30) {
		body["effective_prefill_tokens"] = f.rng.IntN(len(tokens) + 3)
	}
	if f.chance(20) {
		body["track_prefill_tokens"] = f.chance(50)
	}
	if f.chance(10) {
		body["worker_id"] = 7_000_000_000
	}
	x, y, _, err := f.same(ctx, "POST /reservations, explicit", http.MethodPost, "/reservations", body, whole)
	if err == nil && x.status == http.StatusCreated && y.status == http.StatusCreated {
		f.booked(body, y)
	}
	return err
}

// goOn tells how a request goes on, sometimes of one that is not there.
func (f *fleet) goOn(ctx context.Context) error {
	id := "nobody"
	at := -1
	if len(f.live) > 0 && !f.chance(5) {
		at = f.rng.IntN(len(f.live))
		id = f.live[at].id
	}
	path := "/reservations/" + id
	switch n := f.rng.IntN(100); {
	case n < 35:
		_, _, _, err := f.same(ctx, "POST …/prefill_complete", http.MethodPost, path+"/prefill_complete", nil, whole)
		return err
	case n < 50:
		body := map[string]any{}
		if f.chance(60) {
			body["decay_fraction"] = []float64{0, 0.25, 0.5, 1, 2, -1}[f.rng.IntN(6)]
		}
		if by, set := body["decay_fraction"].(float64); set && by >= 0 && by < 1 && at >= 0 {
			f.faded = true
		}
		_, _, _, err := f.same(ctx, "POST …/output_block", http.MethodPost, path+"/output_block", body, whole)
		return err
	default:
		_, _, _, err := f.same(ctx, "DELETE /reservations/{id}", http.MethodDelete, path, nil, whole)
		if at >= 0 {
			f.live = slices.Delete(f.live, at, at+1)
		}
		if err == nil && f.chance(20) {
			_, _, _, err = f.same(ctx, "DELETE /reservations/{id}, again", http.MethodDelete, path, nil, whole)
		}
		return err
	}
}

// oddity is a request that both refuse or take in the same way, or one on which
// they differ deliberately.
func (f *fleet) oddity(ctx context.Context) error {
	odd := oddities[f.rng.IntN(len(oddities))]
	w := f.anyWorker()
	body := odd.body
	if m, ok := body.(map[string]any); ok {
		m = maps.Clone(m)
		if _, set := m["model_name"]; !set && odd.scoped {
			m["model_name"], m["routing_group"] = f.model, f.group
		}
		body = m
	}
	if odd.tail != "" {
		text, err := json.Marshal(body)
		if err != nil {
			return err
		}
		body = append(text, odd.tail...)
	}
	path := odd.path
	if odd.worker {
		path += fmt.Sprint(w.id)
	}
	if odd.theirs == 0 {
		return f.alike(ctx, odd, path, body)
	}
	if !f.somebody() && odd.scoped {
		return nil // that nobody is there is another answer than that of the oddity
	}
	if odd.worker && !w.ready {
		return nil // it might make the worker whole in one of them
	}
	if err := f.deliberate(ctx, odd.name, odd.method, path, body, odd.theirs, odd.ours); err != nil {
		return err
	}
	if odd.path == "/workers" {
		_, _, err := f.both(ctx, http.MethodDelete, "/workers/7", nil)
		return err
	}
	if !odd.worker {
		return nil
	}
	return f.put(ctx, w) // what one of them has taken is taken back
}

// somebody says whether any worker is ready.
func (f *fleet) somebody() bool {
	return slices.ContainsFunc(f.workers, func(w *worker) bool { return w.ready })
}

// alike sends what both are to answer in the same way.
func (f *fleet) alike(ctx context.Context, odd oddity, path string, body any) error {
	x, y, err := f.both(ctx, odd.method, path, body)
	if err != nil {
		return err
	}
	if odd.scoped && !f.somebody() && !f.equals && x.status == http.StatusServiceUnavailable && y.status/100 == 4 {
		f.led.except("what is wrong with a request is said also while nobody is ready")
		return nil
	}
	f.judge("oddity: "+odd.name, odd.method+" "+path, body, x, y, nil)
	if odd.path == "/workers" && (x.status == http.StatusCreated || y.status == http.StatusCreated) {
		_, _, err = f.both(ctx, http.MethodDelete, "/workers/7", nil)
	}
	return err
}
