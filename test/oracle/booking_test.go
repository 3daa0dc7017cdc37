//go:build oracle

package oracle_test

import (
	"context"
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
)

// wish is what a request asks of the choice.
type wish struct {
	fields   map[string]any
	allowed  func(w *worker, rank int) bool
	required []string
	prefer   map[string]float64
	pinned   bool
}

// wish draws constraints, often none.
func (f *fleet) wish() wish {
	q := wish{fields: map[string]any{}, allowed: func(*worker, int) bool { return true }}
	switch n := f.rng.IntN(100); {
	case n < 45:
	case n < 60: // an allow-set, now and then with somebody who is not there
		set := []uint64{}
		for _, w := range f.workers {
			if f.chance(50) {
				set = append(set, w.id)
			}
		}
		if f.chance(20) {
			set = append(set, 7_000_000_000)
		}
		q.fields["allowed_worker_ids"] = set
		q.allowed = func(w *worker, _ int) bool { return slices.Contains(set, w.id) }
	case n < 70:
		w := f.anyWorker()
		rank := w.ranks[f.rng.IntN(len(w.ranks))].rank
		if f.chance(5) {
			rank += 7
		}
		q.fields["pinned_worker"] = map[string]any{"worker_id": w.id, "dp_rank": rank}
		q.pinned = true
		q.allowed = func(o *worker, r int) bool { return o == w && r == rank }
		if f.chance(20) {
			other := f.anyWorker()
			q.fields["allowed_worker_ids"] = []uint64{other.id}
			q.allowed = func(o *worker, r int) bool { return o == w && r == rank && other == w }
		}
	case n < 78:
		w := f.anyWorker()
		rank := w.ranks[f.rng.IntN(len(w.ranks))].rank
		target := map[string]any{"worker_id": w.id}
		any := f.chance(50)
		if !any {
			target["dp_rank"] = rank
		}
		q.fields["affinity_target"] = target
		q.allowed = func(o *worker, r int) bool { return !w.ready || o == w && (any || r == rank) }
		if f.chance(30) { // and a pin, which may contradict it
			led, p := q.allowed, f.anyWorker()
			to := p.ranks[f.rng.IntN(len(p.ranks))].rank
			q.fields["pinned_worker"] = object{"worker_id": p.id, "dp_rank": to}
			q.pinned = true
			q.allowed = func(o *worker, r int) bool { return o == p && r == to && led(o, r) }
		}
	default:
		q = f.tainted(q)
	}
	return q
}

func (f *fleet) tainted(q wish) wish {
	c := map[string]any{}
	for _, t := range taintNames {
		if f.chance(25) {
			q.required = append(q.required, t)
		}
	}
	if len(q.required) > 0 {
		c["required_taints"] = q.required
	}
	if f.chance(60) {
		q.prefer = map[string]float64{}
		for _, t := range taintNames {
			if f.chance(50) {
				q.prefer[t] = math.Round((f.rng.Float64()*4-2)*100) / 100
			}
		}
		c["preferred_taints"] = q.prefer
	}
	q.fields["routing_constraints"] = c
	return q
}

// eligible are the rows that may serve the request.
func (f *fleet) eligible(rows []row, q wish) []row {
	return slices.DeleteFunc(slices.Clone(rows), func(r row) bool {
		w := f.worker(r.key.worker)
		if w == nil || !w.ready || !q.allowed(w, r.key.rank) {
			return true
		}
		for _, t := range q.required {
			if !slices.Contains(w.taints, t) {
				return true
			}
		}
		return false
	})
}

// options are those among which each service may choose: more than one are tied.
type options struct{ theirs, ours []rankKey }

// only is the one that both must take, if there is one.
func (o options) only() (k rankKey, ok bool) {
	if len(o.theirs) == 1 && slices.Equal(o.theirs, o.ours) {
		return o.theirs[0], true
	}
	return rankKey{}, false
}

// bestOf are those of the least cost among the eligible, by what each service tells
// of its loads.
func (f *fleet) bestOf(rows rows, q wish, w weights) options {
	margin := 1e-6
	if f.faded {
		margin = 1.01
	}
	preferred := func(k rankKey) float64 {
		sum := 0.0
		for _, t := range f.worker(k.worker).taints {
			sum += q.prefer[t]
		}
		if q.pinned {
			return 0
		}
		return sum
	}
	return options{
		theirs: best(f.eligible(rows.theirs, q), f.block, w, preferred, margin),
		ours:   best(f.eligible(rows.ours, q), f.block, w, preferred, margin),
	}
}

// selectStep asks where a request should go and books nothing.
func (f *fleet) selectStep(ctx context.Context) error {
	tokens, q := f.prompt(), f.wish()
	rows, err := f.rows(ctx, tokens)
	if err != nil || rows == nil {
		return err
	}
	body := f.withPrompt(tokens)
	maps.Copy(body, q.fields)
	if f.chance(30) {
		body["advisory"] = true
	}
	if f.chance(20) {
		body["expected_output_tokens"] = 1 + f.rng.IntN(200)
	}
	if f.chance(10) {
		body["priority_jump"], body["strict_priority"] = 2.5, 3
	}
	if err := f.eligibleAgree(ctx, tokens, q); err != nil {
		return err
	}
	if f.chance(15) {
		return f.override(ctx, body, *rows, q)
	}
	return f.choose(ctx, "POST /select", "/select", body, f.bestOf(*rows, q, defaultWeights))
}

// override asks with other weights for this request, which ours always follows.
func (f *fleet) override(ctx context.Context, body map[string]any, rows rows, q wish) error {
	w := weights{credit: []float64{0, 0.5, 2}[f.rng.IntN(3)], prefill: []float64{0, 0.5, 2}[f.rng.IntN(3)]}
	body["router_config_override"] = map[string]any{"overlap_score_credit": w.credit, "prefill_load_scale": w.prefill}
	x, y, err := f.both(ctx, http.MethodPost, "/select", body)
	if err != nil {
		return err
	}
	const what = "POST /select, override"
	among := f.bestOf(rows, q, w)
	if x.status == http.StatusOK && !slices.Contains(among.theirs, chosen(x)) && slices.Contains(f.bestOf(rows, q, defaultWeights).theirs, chosen(x)) {
		f.led.count(what)
		f.led.except("an override takes effect")
		if !f.equals && (y.status != http.StatusOK || !slices.Contains(among.ours, chosen(y))) {
			f.led.differ(what, "%s: %s: ours does not follow it: %d %s, by the formula one of %v", f.at, words(body), y.status, cut(y.text), among.ours)
		}
		return nil
	}
	f.decided(what, "/select", body, x, y, among)
	return nil
}

// eligibleAgree asks for each worker alone whether it may serve the request.
func (f *fleet) eligibleAgree(ctx context.Context, tokens []uint32, q wish) error {
	if q.pinned || len(q.required) == 0 && q.fields["affinity_target"] == nil {
		return nil
	}
	for _, w := range f.workers {
		body := f.lookup(tokens)
		maps.Copy(body, q.fields)
		body["allowed_worker_ids"] = []uint64{w.id}
		x, y, err := f.both(ctx, http.MethodPost, "/select", body)
		if err != nil {
			return err
		}
		f.judge("who is eligible", "POST /select", body, x, y, func(any) any { return nil })
	}
	return nil
}

// choose asks both for a decision. Among ties each may take its own.
func (f *fleet) choose(ctx context.Context, what, path string, body map[string]any, among options) error {
	x, y, err := f.both(ctx, http.MethodPost, path, body)
	if err != nil {
		return err
	}
	f.decided(what, path, body, x, y, among)
	return nil
}

func (f *fleet) decided(what, path string, body map[string]any, x, y answer, among options) {
	if name := f.unknownPin(body, x, y); name != "" {
		f.led.count(what)
		f.led.except(name)
		return
	}
	if x.status != http.StatusOK || y.status != http.StatusOK {
		if len(among.theirs) > 0 && x.status < http.StatusInternalServerError {
			f.led.differ("the driver's own view", "%s: %s: somebody may serve it (%v), theirs says %d %s", f.at, words(body), among.theirs, x.status, cut(x.text))
		}
		f.judge(what, "POST "+path, body, x, y, nil)
		return
	}
	theirs, ours := chosen(x), chosen(y)
	if !slices.Contains(among.theirs, theirs) {
		f.led.differ("the driver's own view", "%s: %s: theirs takes %v, by the formula it would be one of %v of %+v", f.at, words(body), theirs, among.theirs, f.last.theirs)
		return
	}
	if !slices.Contains(among.ours, ours) {
		f.led.differ(what+", choice", "%s: %s: ours takes %v, by the formula it would be one of %v of %+v", f.at, words(body), ours, among.ours, f.last.ours)
		return
	}
	f.untail(x.body, y.body, 0)
	switch _, settled := among.only(); {
	case settled:
		f.led.count("choices compared")
	case ours == theirs:
		f.led.count("choices among ties")
	case slices.Contains(among.theirs, ours):
		f.led.count("choices among ties")
		return
	default:
		f.led.except("another choice, since load counts the partly filled block of running requests")
		return
	}
	f.judge(what, "POST "+path, body, x, y, decided(body["selection_id"] == nil))
}

// unknownPin names why ours says that it does not know a pin, where theirs says that
// nobody is there.
func (f *fleet) unknownPin(body map[string]any, x, y answer) string {
	pin, ok := body["pinned_worker"].(map[string]any)
	if !ok || x.status != http.StatusServiceUnavailable || y.status != http.StatusNotFound {
		return ""
	}
	w := f.worker(pin["worker_id"].(uint64))
	if w == nil || !w.ready {
		return "" // it is known, also while it is incomplete
	}
	if !slices.ContainsFunc(w.ranks, func(p *publisher) bool { return p.rank == pin["dp_rank"] }) {
		return "an unknown pin is 404: a rank that the worker has not"
	}
	return ""
}

// drawn is a request that the seed draws, and who would be best for it.
type drawn struct {
	body  map[string]any
	wish  wish
	rows  rows
	among options
}

// draw draws one; nil where the services differ already.
func (f *fleet) draw(ctx context.Context) (*drawn, error) {
	tokens, q := f.prompt(), f.wish()
	rows, err := f.rows(ctx, tokens)
	if err != nil || rows == nil {
		return nil, err
	}
	body := f.withPrompt(tokens)
	maps.Copy(body, q.fields)
	return &drawn{body, q, *rows, f.bestOf(*rows, q, defaultWeights)}, nil
}

// book selects and reserves in one step. Where several are best, who serves is
// pinned, so that both go on alike.
func (f *fleet) book(ctx context.Context) error {
	d, err := f.draw(ctx)
	if err != nil || d == nil {
		return err
	}
	body, q, among := d.body, d.wish, d.among
	if f.chance(25) && !q.pinned {
		return f.bookSession(ctx, body, q, d.rows)
	}
	if _, settled := among.only(); !settled && len(among.theirs) > 0 {
		if err := f.choose(ctx, "POST /select", "/select", body, among); err != nil {
			return err
		}
		f.pin(body, &among)
	}
	f.name(body)
	if f.chance(20) {
		body["expected_output_tokens"] = 1 + f.rng.IntN(200)
	}
	return f.reserve(ctx, body, among)
}

// pin makes both take the same.
func (f *fleet) pin(body map[string]any, among *options) {
	k := among.theirs[f.rng.IntN(len(among.theirs))]
	body["pinned_worker"] = map[string]any{"worker_id": k.worker, "dp_rank": k.rank}
	delete(body, "allowed_worker_ids")
	delete(body, "affinity_target")
	*among = options{[]rankKey{k}, []rankKey{k}}
}

func (f *fleet) name(body map[string]any) {
	f.made++
	body["selection_id"] = fmt.Sprintf("f%d-%d", f.number, f.made)
}

// reserve books in one step.
func (f *fleet) reserve(ctx context.Context, body map[string]any, among options) error {
	x, y, err := f.both(ctx, http.MethodPost, "/select_and_reserve", body)
	if err != nil {
		return err
	}
	f.decided("POST /select_and_reserve", "/select_and_reserve", body, x, y, among)
	if x.status != http.StatusOK || y.status != http.StatusOK {
		return nil
	}
	f.booked(body, y)
	if f.chance(20) {
		if _, _, _, err := f.same(ctx, "POST /select_and_reserve, id in use", http.MethodPost, "/select_and_reserve", body, nil); err != nil {
			return err
		}
	}
	return nil
}
