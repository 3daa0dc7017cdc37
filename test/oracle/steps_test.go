//go:build oracle

package oracle_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
)

// run is the whole script of one fleet.
func (f *fleet) run(ctx context.Context) error {
	f.at = fmt.Sprintf("fleet %d, start", f.number)
	if err := f.open(ctx); err != nil {
		return err
	}
	if err := f.engines(ctx); err != nil {
		return err
	}
	steps := []struct {
		weight int
		do     func(context.Context) error
		depth  bool // rests on what the ranks hold
	}{
		{20, f.look, false},
		{25, f.selectStep, true},
		{25, f.book, true},
		{8, f.bookKept, true},
		{6, f.bookExplicitly, true},
		{18, f.goOn, false},
		{8, f.loads, false},
		{6, f.engines, false},
		{4, f.retaint, false},
		{3, f.lame, false},
		{2, f.remove, false},
		{8, f.oddity, false},
		{8, f.strange, false},
	}
	total := 0
	for _, s := range steps {
		total += s.weight
	}
	before := f.led.differences()
	for i := range 12 + f.rng.IntN(24) {
		if f.led.differences() > before {
			// What follows would differ for the same reason.
			return f.abandon(ctx)
		}
		f.at = fmt.Sprintf("fleet %d, step %d", f.number, i)
		n := f.rng.IntN(total)
		for _, s := range steps {
			if n -= s.weight; n < 0 {
				if s.depth && !f.depth() {
					// Theirs is not exact here, and what follows from it is not compared.
					break
				}
				if err := s.do(ctx); err != nil {
					return fmt.Errorf("%s: %w", f.at, err)
				}
				break
			}
		}
		if len(f.workers) == 0 {
			break
		}
	}
	return f.close(ctx)
}

// lookup is the body that asks about a prompt.
func (f *fleet) lookup(tokens []uint32) map[string]any {
	m := map[string]any{"model_name": f.model, "token_ids": nonNil(tokens)}
	if f.group != "default" {
		m["routing_group"] = f.group
	}
	return m
}

// withPrompt is a body with the prompt, sometimes as hashes.
func (f *fleet) withPrompt(tokens []uint32) map[string]any {
	m := f.lookup(tokens)
	if len(tokens) > 0 && f.chance(10) {
		local, sequence := blockHashes(tokens, f.block)
		delete(m, "token_ids")
		m["block_hashes"], m["sequence_hashes"], m["isl_tokens"] = nonNil(local), nonNil(sequence), len(tokens)
	}
	return m
}

func nonNil[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}

func (f *fleet) look(ctx context.Context) error {
	_, err := f.rows(ctx, f.prompt())
	return err
}

// rows are what each service tells of its ranks.
type rows struct{ theirs, ours []row }

// rows asks both for overlap and load of every rank and compares them with each
// other and with the model; nil where nobody can be told of.
func (f *fleet) rows(ctx context.Context, tokens []uint32) (*rows, error) {
	body := f.lookup(tokens)
	x, y, err := f.both(ctx, http.MethodPost, "/overlap_scores", body)
	if err != nil {
		return nil, err
	}
	f.overlaps(tokens, body, x, y)
	if f.inexact() != "" {
		return nil, nil
	}
	lx, ly, err := f.both(ctx, http.MethodPost, "/potential_loads", body)
	if err != nil {
		return nil, err
	}
	if x.status == http.StatusOK && y.status == http.StatusOK && lx.status == http.StatusOK && ly.status == http.StatusOK {
		f.last = rows{parseRows(x, lx, len(tokens)), parseRows(y, ly, len(tokens))}
		f.untail(lx.body, ly.body, f.tail(len(tokens)))
	}
	if f.external && !f.equals {
		return nil, f.externalLoads(tokens, body, lx, ly)
	}
	f.judge("POST /potential_loads", "POST /potential_loads", body, lx, ly, byRank(""))
	if lx.status != http.StatusOK {
		return nil, nil
	}
	return &f.last, nil
}

// overlaps compares what both hold of a prompt, with each other and with the plain
// model. Where there is a reason why theirs is not exact, only ours is held against
// the model, and a difference is an exception.
func (f *fleet) overlaps(tokens []uint32, body any, x, y answer) {
	const what = "POST /overlap_scores"
	if x.status != http.StatusOK || y.status != http.StatusOK {
		f.judge(what, what, body, x, y, nil)
		return
	}
	view := byRank("workers")
	wrong := f.unlikeModel(tokens, y)
	if reason := f.inexact(); reason != "" {
		f.led.count(what)
		if wrong != "" && !f.equals {
			f.led.differ(what, "%s: %s: ours is not what the events say: %s", f.at, words(body), wrong)
			return
		}
		if len(unlike(view(tidy(x.body)), view(tidy(y.body)))) > 0 {
			f.led.except(reason)
		}
		return
	}
	if f.judge(what, what, body, x, y, view) && wrong != "" {
		f.led.differ("the model of events", "%s: %s: both agree, the model does not: %s", f.at, words(body), wrong)
	}
}

// depth tells whether what rests on overlaps is the same in both in this fleet.
func (f *fleet) depth() bool { return f.inexact() == "" && (!f.external || f.equals) }

// inexact names why the index of theirs may be less than exact in this fleet.
func (f *fleet) inexact() string {
	switch {
	case f.salted:
		return "engines that hash alike blocks differently: ours keeps the children"
	case f.holed:
		return "a block removed from under others: ours keeps those"
	case f.fronted:
		return "a device block behind host blocks: ours counts it"
	}
	return ""
}

// unlikeModel says where the depths in an answer differ from the model.
func (f *fleet) unlikeModel(tokens []uint32, a answer) string {
	names := prefixes(tokens, f.block, "")
	m, _ := a.body.(map[string]any)
	list, _ := m["workers"].([]any)
	for _, r := range list {
		k := rankKey{number(r, "worker_id"), int(number(r, "dp_rank"))}
		got := [3]int{int(number(r, "device_blocks")), int(number(r, "host_pinned_blocks")), int(number(r, "disk_blocks"))}
		want := [3]int{f.held.depth(k, names, 1), f.held.depth(k, names, 2), f.held.depth(k, names, 4)}
		if got != want {
			return fmt.Sprintf("worker %d rank %d holds %v, told is %v", k.worker, k.rank, want, got)
		}
	}
	return ""
}

func parseRows(overlaps, loads answer, tokens int) []row {
	byKey := map[rankKey]*row{}
	m, _ := overlaps.body.(map[string]any)
	list, _ := m["workers"].([]any)
	for _, r := range list {
		k := rankKey{number(r, "worker_id"), int(number(r, "dp_rank"))}
		byKey[k] = &row{
			key: k, tokens: tokens, device: int(number(r, "device_blocks")),
			host: int(number(r, "host_pinned_extension_blocks")), disk: int(number(r, "disk_extension_blocks")),
		}
	}
	list, _ = loads.body.([]any)
	for _, r := range list {
		if e := byKey[rankKey{number(r, "worker_id"), int(number(r, "dp_rank"))}]; e != nil {
			e.prefill, e.decode = float64(number(r, "potential_prefill_tokens")), float64(number(r, "potential_decode_blocks"))
		}
	}
	var rows []row
	for _, e := range byKey {
		rows = append(rows, *e)
	}
	slices.SortFunc(rows, func(a, b row) int {
		return slices.Compare([]uint64{a.key.worker, uint64(a.key.rank)}, []uint64{b.key.worker, uint64(b.key.rank)})
	})
	return rows
}

// loads compares the loads of this fleet's partition.
func (f *fleet) loads(ctx context.Context) error {
	path := fmt.Sprintf("/loads?model_name=%s&routing_group=%s", f.model, f.group)
	x, y, err := f.both(ctx, http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	f.untail(x.body, y.body, 0)
	f.judge("GET /loads", "GET "+path, nil, x, y, loadsView)
	return nil
}

// retaint changes a worker without touching what it holds or runs.
func (f *fleet) retaint(ctx context.Context) error {
	w := f.anyWorker()
	w.taints = nil
	for _, t := range taintNames {
		if f.chance(30) {
			w.taints = append(w.taints, t)
		}
	}
	w.fields["taints"] = nonNil(slices.Clone(w.taints))
	if f.chance(50) {
		_, _, _, err := f.same(ctx, "PATCH /workers/{id}", http.MethodPatch, fmt.Sprintf("/workers/%d", w.id), map[string]any{"taints": w.fields["taints"]}, record)
		return err
	}
	return f.put(ctx, w)
}

// lame puts a worker with less than it needs: it is kept and takes nothing. A worker
// that is lame is put whole again.
func (f *fleet) lame(ctx context.Context) error {
	w := f.anyWorker()
	if !w.ready {
		return f.put(ctx, w)
	}
	less := maps.Clone(w.fields)
	drop := []string{"endpoint", "block_size", "kv_events_endpoint", "kv_events_endpoints"}
	lost := drop[f.rng.IntN(len(drop))]
	if _, has := less[lost]; !has {
		return nil
	}
	delete(less, lost)
	if f.chance(20) {
		less["block_size"] = f.block + 1
	}
	w.ready = false
	_, _, _, err := f.same(ctx, "POST /workers, incomplete", http.MethodPost, "/workers", less, record)
	if err != nil {
		return err
	}
	if _, _, _, err = f.same(ctx, "GET /ready", http.MethodGet, "/ready", nil, record); err != nil {
		return err
	}
	f.forget(w)
	return f.loads(ctx)
}

// remove deletes a worker; what it ran is over.
func (f *fleet) remove(ctx context.Context) error {
	i := f.rng.IntN(len(f.workers))
	w := f.workers[i]
	path := fmt.Sprintf("/workers/%d", w.id)
	if _, _, _, err := f.same(ctx, "DELETE /workers/{id}", http.MethodDelete, path, nil, record); err != nil {
		return err
	}
	f.workers = slices.Delete(f.workers, i, i+1)
	for _, p := range w.ranks {
		p.close()
	}
	f.forget(w)
	_, _, _, err := f.same(ctx, "DELETE /workers/{id}, again", http.MethodDelete, path, nil, record)
	return err
}

// forget drops what is bound to or runs on a worker that takes nothing any more.
func (f *fleet) forget(w *worker) {
	for i := range f.live {
		if f.live[i].on.worker == w.id {
			f.live[i].tail = 0
		}
	}
	maps.DeleteFunc(f.sessions, func(_ string, k rankKey) bool { return k.worker == w.id })
}
