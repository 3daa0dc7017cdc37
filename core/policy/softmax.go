package policy

import (
	"context"
	"encoding/json"
	"maps"
	"math"
	"slices"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/plugins/abi/rpmath"
)

// softmax draws a row by chance: with totals scaled so that the best is 0 and
// the worst 1 away from it, a row's share is proportional to
// exp(−distance / temperature). At temperature 0 the best total is picked, at a
// very high one all rows are equally likely, as they are when all totals are
// equal. The draw is the request's seed's; rows are walked in table order.
type softmax struct{ temperature float64 }

const (
	temperatureName    = "temperature"
	temperatureAllowed = "a finite number, at least 0"
)

func newSoftmax(config json.RawMessage) (softmax, error) {
	var s softmax
	if len(config) == 0 {
		return s, nil
	}
	values, err := objectOf("config", config)
	if err != nil {
		return s, err
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if name != temperatureName {
			return s, &fleet.FieldError{Field: "config", Value: name, Allowed: temperatureName}
		}
		if s.temperature, err = numberIn(temperatureName, values[name], 0, math.MaxFloat64, temperatureAllowed); err != nil {
			return s, err
		}
	}
	return s, nil
}

func (softmax) Columns() ColumnSet { return ColumnSet{} }

func (s softmax) Pick(_ context.Context, t *Table, totals []float64, _ *StageReport) (Choice, Verdict, error) {
	if v, ok := t.Overrides[temperatureName]; ok {
		// Checked before the decision.
		if o, err := numberIn(temperatureName, v, 0, math.MaxFloat64, temperatureAllowed); err == nil {
			s.temperature = o
		}
	}
	if s.temperature == 0 {
		return Choice{HostDraws: true}, Answered, nil
	}
	scale := scaleOf(t, totals)
	sum, rows := 0.0, 0
	for row, v := range totals {
		if t.Kept(row) {
			if w := s.share(scale, v); w > 0 {
				sum += w
				rows++
			}
		}
	}
	draw := unit(SplitMix64(t.Seed))
	target, reached := float64(draw*sum), 0.0
	chosen := 0
	for row, v := range totals {
		if !t.Kept(row) {
			continue
		}
		w := s.share(scale, v)
		if w == 0 {
			continue
		}
		chosen = row
		if reached += w; target < reached {
			break
		}
	}
	return Choice{Row: chosen, Tie: tieOf(rows, draw)}, Answered, nil
}

// share is a row's weight: 1 for the best, and for every row when all are equal.
func (s softmax) share(scale span, total float64) float64 {
	return rpmath.Exp(-(scale.distance(total) / s.temperature))
}

func (softmax) CheckOverrides(overrides map[string]json.RawMessage) (known []string, err error) {
	value, ok := overrides[temperatureName]
	if !ok {
		return nil, nil
	}
	_, err = numberIn(temperatureName, value, 0, math.MaxFloat64, temperatureAllowed)
	return []string{temperatureName}, err
}

func (softmax) Close() error { return nil }

// span is the range of the kept totals. They are within ±MaxScore, so that it is
// finite however far they are apart.
type span struct{ high, width float64 }

func scaleOf(t *Table, totals []float64) (s span) {
	low, found := 0.0, false
	for row, v := range totals {
		if !t.Kept(row) {
			continue
		}
		if !found || v < low {
			low = v
		}
		if !found || v > s.high {
			s.high = v
		}
		found = true
	}
	s.width = s.high - low
	return s
}

// distance is 0 for the best total and 1 for the worst.
func (s span) distance(total float64) float64 {
	if s.width == 0 {
		return 0
	}
	return (s.high - total) / s.width
}
