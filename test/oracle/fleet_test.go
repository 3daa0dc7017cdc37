//go:build oracle

package oracle_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	zmq "github.com/pebbe/zmq4"
)

// worker is one of the fleet's, with an event socket for each rank.
type worker struct {
	id     uint64
	start  int
	taints []string
	ranks  []*publisher
	fields map[string]any // as it was last put
	ready  bool
}

// fleet is one random fleet, the same in both services, and what is known of it.
// Everything is drawn from rng, so that a number makes the same fleet again.
type fleet struct {
	pair
	rng      *rand.Rand
	zmq      *zmq.Context
	number   int
	model    string
	group    string
	block    int
	workers  []*worker
	families [][]uint32
	held     index
	salted   bool // every rank has hashes of its own for the same blocks
	holed    bool // a block was removed from under others
	outside  bool // its engines reach external storage
	external bool // and a block is there
	shuffled bool // its engines may store on a device what follows on host blocks
	fronted  bool // and have done so
	faded    bool // loads have fractions, which /potential_loads rounds
	last     rows
	live     []booking
	sessions map[string]rankKey
	// sessionsSpent makes new names for sessions that the two may have bound in
	// different ways.
	sessionsSpent int
	made          int
	round         uint32
}

var taintNames = []string{"a", "b", "c"}

func newFleet(p pair, z *zmq.Context, seed uint64, number int) *fleet {
	rng := rand.New(rand.NewPCG(seed, uint64(number)))
	f := &fleet{
		pair: p, rng: rng, zmq: z, number: number, model: fmt.Sprintf("m/%d", number), group: "default",
		block: 4 + rng.IntN(29), held: index{}, sessions: map[string]rankKey{},
		salted: rng.IntN(10) == 0, outside: rng.IntN(8) == 0, shuffled: rng.IntN(8) == 0,
	}
	if rng.IntN(3) == 0 {
		f.group = "g"
	}
	for range 3 + rng.IntN(3) {
		f.families = append(f.families, f.tokens(f.block*(6+rng.IntN(15))))
	}
	return f
}

func (f *fleet) tokens(n int) []uint32 {
	ids := make([]uint32, n)
	for i := range ids {
		ids[i] = f.rng.Uint32N(150_000)
	}
	return ids
}

// chance is true in n of 100 cases.
func (f *fleet) chance(n int) bool { return f.rng.IntN(100) < n }

// open puts the workers into both services and waits until both listen.
func (f *fleet) open(ctx context.Context) error {
	for i := range 1 + f.rng.IntN(8) {
		w := &worker{id: uint64(f.number)*100 + uint64(i) + 1, ready: true}
		size := 1
		if f.chance(50) {
			size = 1 + f.rng.IntN(4)
		}
		if f.chance(15) {
			w.start = f.rng.IntN(3)
		}
		for r := range size {
			p, err := newPublisher(f.zmq, w.start+r)
			if err != nil {
				return err
			}
			w.ranks = append(w.ranks, p)
		}
		w.fields = f.record(w, size)
		f.workers = append(f.workers, w)
		if err := f.put(ctx, w); err != nil {
			return err
		}
	}
	for _, w := range f.workers {
		if err := f.listening(w); err != nil {
			return err
		}
	}
	return nil
}

// record is the body of a worker.
func (f *fleet) record(w *worker, size int) map[string]any {
	for _, t := range taintNames {
		if f.chance(30) {
			w.taints = append(w.taints, t)
		}
	}
	m := map[string]any{
		"worker_id": w.id, "model_name": f.model, "block_size": f.block,
		"endpoint": fmt.Sprintf("http://127.0.0.1:%d", 20000+w.id%10000),
		"taints":   nonNil(slices.Clone(w.taints)),
	}
	if f.group != "default" || f.chance(30) {
		m["routing_group"] = f.group
	}
	if size > 1 || f.chance(20) {
		m["data_parallel_size"] = size
	}
	if w.start > 0 {
		m["data_parallel_start_rank"] = w.start
	}
	if size > 1 || w.start > 0 || f.chance(20) {
		by := map[string]string{}
		for _, p := range w.ranks {
			by[fmt.Sprint(p.rank)] = p.endpoint
		}
		m["kv_events_endpoints"] = by
	} else {
		m["kv_events_endpoint"] = w.ranks[0].endpoint
	}
	if f.chance(40) {
		m["max_num_batched_tokens"] = 1000 + f.rng.IntN(8000)
	}
	if f.chance(40) {
		m["total_kv_blocks"] = 10 + f.rng.IntN(1000)
	}
	if f.chance(20) {
		m["stable_routing_id"] = fmt.Sprintf("s%d", w.id)
	}
	if f.chance(20) {
		m["topology_domains"] = map[string]string{"zone": "z"}
	}
	return m
}

// put puts a worker whole. One that lacked something starts again with nothing.
func (f *fleet) put(ctx context.Context, w *worker) error {
	again := !w.ready
	w.ready = true
	x, _, _, err := f.same(ctx, "POST /workers", http.MethodPost, "/workers", w.fields, record)
	if m, _ := x.body.(map[string]any); err == nil && w.ready && m["lifecycle"] != "schedulable" {
		return fmt.Errorf("%s does not take %s: %s", f.theirs.name, words(w.fields), cut(x.text))
	}
	if err != nil || !again {
		return err
	}
	for _, p := range w.ranks {
		delete(f.held, rankKey{w.id, p.rank})
	}
	return f.listening(w)
}

// listening waits until both services have subscribed to every rank.
func (f *fleet) listening(w *worker) error {
	for _, p := range w.ranks {
		if err := p.awaitSubscribers(2, 10*time.Second); err != nil {
			return fmt.Errorf("%s: worker %d rank %d: %w", f.at, w.id, p.rank, err)
		}
	}
	return nil
}

// close removes the workers and looks that both services have none left.
func (f *fleet) close(ctx context.Context) error {
	f.at = fmt.Sprintf("fleet %d, end", f.number)
	for _, b := range f.live {
		if _, _, _, err := f.same(ctx, "DELETE /reservations/{id}", http.MethodDelete, "/reservations/"+b.id, nil, whole); err != nil {
			return err
		}
	}
	f.live = nil
	if err := f.loads(ctx); err != nil {
		return err
	}
	for _, w := range f.workers {
		if _, _, _, err := f.same(ctx, "DELETE /workers/{id}", http.MethodDelete, fmt.Sprintf("/workers/%d", w.id), nil, record); err != nil {
			return err
		}
		for _, p := range w.ranks {
			p.close()
		}
	}
	f.workers = nil
	_, _, _, err := f.same(ctx, "GET /workers", http.MethodGet, "/workers", nil, record)
	return err
}

// abandon removes everything from both without comparing.
func (f *fleet) abandon(ctx context.Context) error {
	for _, w := range f.workers {
		if _, _, err := f.both(ctx, http.MethodDelete, fmt.Sprintf("/workers/%d", w.id), nil); err != nil {
			return err
		}
	}
	return nil
}

// kill closes what an aborted fleet has open.
func (f *fleet) kill() {
	for _, w := range f.workers {
		for _, p := range w.ranks {
			p.close()
		}
	}
}

func (f *fleet) worker(id uint64) *worker {
	for _, w := range f.workers {
		if w.id == id {
			return w
		}
	}
	return nil
}

func (f *fleet) anyWorker() *worker { return f.workers[f.rng.IntN(len(f.workers))] }

// prompt is part of a family with something else behind it, or all new.
func (f *fleet) prompt() []uint32 {
	if f.chance(10) {
		return f.tokens(f.rng.IntN(4 * f.block))
	}
	base := f.families[f.rng.IntN(len(f.families))]
	cut := f.rng.IntN(len(base) + 1)
	return append(slices.Clone(base[:cut]), f.tokens(f.rng.IntN(3*f.block))...)
}
