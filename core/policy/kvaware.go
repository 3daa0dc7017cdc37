package policy

import (
	"context"
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/plugins/abi"
)

// kvAware is the default policy: cost in blocks of prefill work not covered by
// cached blocks, plus decode blocks held, plus a price for active requests. The
// order of operations is shared with the Wasm twins and must give equal bits:
// every product that is added is rounded by itself, max(a, b) is a > b ? a : b.
type kvAware struct{ weights kvWeights }

// kvWeights are the configuration of kv-aware.
type kvWeights struct {
	prefillLoadScale    float64 // s
	overlapCredit       float64 // c
	creditDecay         float64 // k
	activeRequestWeight float64 // w
	hostWeight          float64 // h
	diskWeight          float64 // d
	sharedWeight        float64 // m
}

func (w *kvWeights) field(name string) (v *float64, allowed string) {
	const anyWeight, tierWeight = "a finite number, at least 0", "a number from 0 to 1"
	switch name {
	case "prefill_load_scale":
		return &w.prefillLoadScale, anyWeight
	case "overlap_credit":
		return &w.overlapCredit, anyWeight
	case "credit_decay":
		return &w.creditDecay, anyWeight
	case "active_request_weight":
		return &w.activeRequestWeight, anyWeight
	case "host_weight":
		return &w.hostWeight, tierWeight
	case "disk_weight":
		return &w.diskWeight, tierWeight
	case "shared_weight":
		return &w.sharedWeight, tierWeight
	}
	return nil, ""
}

var kvAwareNames = []string{
	"prefill_load_scale", "overlap_credit", "credit_decay", "active_request_weight",
	"host_weight", "disk_weight", "shared_weight",
}

// set assigns one weight from JSON; known is false for another name.
func (w *kvWeights) set(name string, value json.RawMessage) (known bool, err error) {
	field, allowed := w.field(name)
	if field == nil {
		return false, nil
	}
	high := math.MaxFloat64
	if strings.HasSuffix(allowed, "to 1") {
		high = 1
	}
	v, err := numberIn(name, value, 0, high, allowed)
	if err != nil {
		return true, err
	}
	*field = v
	return true, nil
}

func newKVAware(config json.RawMessage) (*kvAware, error) {
	s := &kvAware{weights: kvWeights{
		prefillLoadScale: 1, overlapCredit: 1, hostWeight: 0.75, diskWeight: 0.25, sharedWeight: 0.5,
	}}
	if len(config) == 0 {
		return s, nil
	}
	values, err := objectOf("config", config)
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		known, err := s.weights.set(name, values[name])
		if err != nil {
			return nil, err
		}
		if !known {
			return nil, &fleet.FieldError{Field: "config", Value: name, Allowed: strings.Join(kvAwareNames, ", ")}
		}
	}
	return s, nil
}

func (s *kvAware) Columns() ColumnSet {
	var set ColumnSet
	set.AddStd(
		abi.ColKVOverlapDevice, abi.ColKVOverlapHost, abi.ColKVOverlapDisk, abi.ColKVOverlapShared,
		abi.ColLoadPrefillTokens, abi.ColLoadPotentialPrefillTokens, abi.ColLoadPotentialDecodeBlocks,
		abi.ColLoadActiveRequests, abi.ColTaintPreference,
	)
	return set
}

func (s *kvAware) Score(_ context.Context, t *Table, scores []float64, r *StageReport) (Verdict, error) {
	w := s.weights
	for name, value := range t.Overrides {
		// Checked before the decision; names of other stages are not ours.
		_, _ = w.set(name, value)
	}
	n := len(scores)
	var (
		device    = t.Column(abi.ColKVOverlapDevice)[:n]
		host      = t.Column(abi.ColKVOverlapHost)[:n]
		disk      = t.Column(abi.ColKVOverlapDisk)[:n]
		shared    = t.Column(abi.ColKVOverlapShared)[:n]
		prefill   = t.Column(abi.ColLoadPrefillTokens)[:n]
		potential = t.Column(abi.ColLoadPotentialPrefillTokens)[:n]
		decode    = t.Column(abi.ColLoadPotentialDecodeBlocks)[:n]
		active    = t.Column(abi.ColLoadActiveRequests)[:n]
		taint     = t.Column(abi.ColTaintPreference)[:n]
		size      = t.Field(abi.FieldBlockSize)
		blocks    = larger(t.Field(abi.FieldISLBlocks), 1)
	)
	least := leastKept(prefill, t.mask)
	for i := range scores {
		excess := larger(prefill[i]-least, 0) / size
		decay := 1 / (1 + float64(w.creditDecay*(excess/blocks)))
		credit := float64(float64(w.overlapCredit*decay)*device[i]) + float64(w.hostWeight*host[i])
		credit += float64(w.diskWeight * disk[i])
		credit += float64(w.sharedWeight * shared[i])
		pre := larger(potential[i]/size-credit, 0)
		cost := float64(w.prefillLoadScale*pre) + decode[i]
		cost += float64(w.activeRequestWeight * active[i])
		scores[i] = -float64(cost * taint[i])
	}
	return Answered, nil
}

// leastKept is the smallest value of the rows that mask keeps; nil keeps all.
func leastKept(values []float64, mask []byte) float64 {
	if mask == nil {
		least := values[0]
		for _, v := range values[1:] {
			if v < least {
				least = v
			}
		}
		return least
	}
	least, found := 0.0, false
	for row, v := range values {
		if mask[row] == 1 && (!found || v < least) {
			least, found = v, true
		}
	}
	return least
}

func (s *kvAware) CheckOverrides(overrides map[string]json.RawMessage) (known []string, err error) {
	w := s.weights
	for _, name := range kvAwareNames {
		value, ok := overrides[name]
		if !ok {
			continue
		}
		if _, err := w.set(name, value); err != nil {
			return nil, err
		}
		known = append(known, name)
	}
	return known, nil
}

func (s *kvAware) Close() error { return nil }

// larger is a > b ? a : b, which differs from the built-in max in what it does
// with NaN and −0.
func larger(a, b float64) float64 {
	if a > b {
		return a
	}
	return b
}
