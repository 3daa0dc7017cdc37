package policy

import (
	"context"
	"encoding/json"

	"github.com/routerd/routerd/plugins/abi"
)

// loraAffinity is the built-in order of candidates for a request with an
// adapter: first those of the adapter's replica set that have it loaded, then
// the others of the set, which load it when they are asked, then those that have
// it loaded all the same, then the rest. The score is 3, 2, 1 or 0. It is also
// what counts when another lora scorer abstains.
type loraAffinity struct{}

func (loraAffinity) Columns() ColumnSet {
	var set ColumnSet
	set.AddStd(abi.ColLoraLoaded, abi.ColLoraInReplicaSet)
	return set
}

func (loraAffinity) Score(_ context.Context, t *Table, scores []float64, _ *StageReport) (Verdict, error) {
	var (
		loaded = t.Column(abi.ColLoraLoaded)[:len(scores)]
		inSet  = t.Column(abi.ColLoraInReplicaSet)[:len(scores)]
	)
	for i := range scores {
		scores[i] = float64(2*inSet[i]) + loaded[i]
	}
	return Answered, nil
}

func (loraAffinity) CheckOverrides(map[string]json.RawMessage) ([]string, error) { return nil, nil }

func (loraAffinity) Close() error { return nil }
