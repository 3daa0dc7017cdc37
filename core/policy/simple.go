package policy

import (
	"context"
	"encoding/json"

	"github.com/routerd/routerd/plugins/abi"
)

// leastLoad prefers the rank with the fewest active requests.
type leastLoad struct{}

func (leastLoad) Columns() ColumnSet {
	var set ColumnSet
	set.AddStd(abi.ColLoadActiveRequests)
	return set
}

func (leastLoad) Score(_ context.Context, t *Table, scores []float64, _ *StageReport) (Verdict, error) {
	for i, a := range t.Column(abi.ColLoadActiveRequests)[:len(scores)] {
		scores[i] = -a
	}
	return Answered, nil
}

func (leastLoad) CheckOverrides(map[string]json.RawMessage) ([]string, error) { return nil, nil }

func (leastLoad) Close() error { return nil }

// roundRobin takes the candidates in turn. It holds no state: the turn is the
// table's Sequence, the partition's own count of requests, which keeps its
// value over the attempts of one request and is not moved by advisory ones. So
// the same requests in the same order get the same ranks in every partition.
// The candidate after the one whose turn it is scores -1, the next -2. Those that
// filters dropped take no turns.
type roundRobin struct{}

func (roundRobin) Columns() ColumnSet { return ColumnSet{} }

func (roundRobin) Score(_ context.Context, t *Table, scores []float64, _ *StageReport) (Verdict, error) {
	n := t.countKept()
	turn, nth := int(t.Sequence%uint64(n)), 0
	for row := range scores {
		if t.Kept(row) {
			scores[row] = -float64((nth - turn + n) % n)
			nth++
		}
	}
	return Answered, nil
}

func (roundRobin) CheckOverrides(map[string]json.RawMessage) ([]string, error) { return nil, nil }

func (roundRobin) Close() error { return nil }
