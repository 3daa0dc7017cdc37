package lora

import (
	"cmp"
	"slices"

	"github.com/zeebo/xxh3"

	"github.com/routerd/routerd/fleet"
)

// ranked is a worker with its score for an adapter.
type ranked struct {
	score  uint64
	worker fleet.WorkerID
}

// rank scores a worker for an adapter: XXH3-64 of the adapter's name, seeded
// with the worker's id.
func rank(adapter string, w fleet.WorkerID) ranked {
	return ranked{score: xxh3.HashStringSeed(adapter, uint64(w)), worker: w}
}

// compare puts higher scores first, then lower ids.
func (r ranked) compare(o ranked) int {
	if c := cmp.Compare(o.score, r.score); c != 0 {
		return c
	}
	return cmp.Compare(r.worker, o.worker)
}

// Rendezvous lists the workers in the adapter's order of preference: descending
// by XXH3-64 of the adapter's name seeded with the worker's id, then ascending by
// id. The order of any two workers depends on nothing but them and the adapter,
// so that a worker that leaves or joins moves no other. workers is not changed;
// the result is the caller's.
func Rendezvous(adapter string, workers []fleet.WorkerID) []fleet.WorkerID {
	order := make([]ranked, len(workers))
	for i, w := range workers {
		order[i] = rank(adapter, w)
	}
	slices.SortFunc(order, ranked.compare)
	out := make([]fleet.WorkerID, len(order))
	for i, r := range order {
		out[i] = r.worker
	}
	return out
}
