package load_test

import (
	"math"
	"testing"
	"time"

	"github.com/routerd/routerd/core/load"
)

func TestOverloadValidate(t *testing.T) {
	for name, c := range map[string]struct {
		o     load.Overload
		field string
	}{
		"zero":              {load.Overload{}, ""},
		"all":               {load.Overload{PrefillTokens: 1, PrefillFraction: 2.5, KVFraction: 1}, ""},
		"tokens below 0":    {load.Overload{PrefillTokens: -1}, "prefill_tokens"},
		"part below 0":      {load.Overload{PrefillFraction: -0.1}, "prefill_fraction"},
		"part NaN":          {load.Overload{PrefillFraction: math.NaN()}, "prefill_fraction"},
		"part infinite":     {load.Overload{PrefillFraction: math.Inf(1)}, "prefill_fraction"},
		"KV part above 1":   {load.Overload{KVFraction: 1.01}, "kv_fraction"},
		"KV part not there": {load.Overload{KVFraction: math.NaN()}, "kv_fraction"},
	} {
		t.Run(name, func(t *testing.T) { wantField(t, c.o.Validate(), c.field) })
	}
	if (load.Overload{}).Enabled() || !(load.Overload{KVFraction: 0.5}).Enabled() {
		t.Error("enabled without a limit, or disabled with one")
	}
}

func TestProjectedIsAboveALimit(t *testing.T) {
	for name, c := range map[string]struct {
		o                 load.Overload
		l                 load.Load
		maxBatched, total int64
		want              bool
	}{
		"off":                     {load.Overload{}, load.Load{PrefillTokens: 1 << 40, DecodeBlocks: 1e9}, 1, 1, false},
		"tokens at the limit":     {load.Overload{PrefillTokens: 100}, load.Load{PrefillTokens: 100}, 0, 0, false},
		"tokens above":            {load.Overload{PrefillTokens: 100}, load.Load{PrefillTokens: 101}, 0, 0, true},
		"part at the limit":       {load.Overload{PrefillFraction: 0.5}, load.Load{PrefillTokens: 100}, 200, 0, false},
		"part above":              {load.Overload{PrefillFraction: 0.5}, load.Load{PrefillTokens: 101}, 200, 0, true},
		"a batch without a bound": {load.Overload{PrefillFraction: 0.5}, load.Load{PrefillTokens: 5_000_000}, 0, 0, false},
		"and above":               {load.Overload{PrefillFraction: 0.5}, load.Load{PrefillTokens: 5_000_001}, 0, 0, true},
		"blocks at the limit":     {load.Overload{KVFraction: 0.75}, load.Load{DecodeBlocks: 75}, 0, 100, false},
		"blocks above":            {load.Overload{KVFraction: 0.75}, load.Load{DecodeBlocks: 75.25}, 0, 100, true},
		"blocks of nobody knows":  {load.Overload{KVFraction: 0.75}, load.Load{DecodeBlocks: 1e9}, 0, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := c.o.Projected(c.l, c.maxBatched, c.total); got != c.want {
				t.Errorf("got %v; want %v", got, c.want)
			}
		})
	}
}

// silent is a report that says nothing.
func silent() load.Report {
	return load.Report{At: start, Queued: -1, Running: -1, KVUsed: -1, KVTotal: -1, KVUsage: -1}
}

func with(change func(*load.Report)) load.Report {
	r := silent()
	change(&r)
	return r
}

func TestReportedSaysWhatTheEngineSays(t *testing.T) {
	kv, prefill := load.Overload{KVFraction: 0.5}, load.Overload{PrefillTokens: 10}
	both := load.Overload{KVFraction: 0.5, PrefillFraction: 1}
	for name, c := range map[string]struct {
		o        load.Overload
		r        load.Report
		over, ok bool
	}{
		"off":                {load.Overload{}, with(func(r *load.Report) { r.Queued, r.KVUsage = 9, 1 }), false, false},
		"silent":             {both, silent(), false, false},
		"usage at the limit": {kv, with(func(r *load.Report) { r.KVUsage = 0.5 }), false, true},
		"usage above":        {kv, with(func(r *load.Report) { r.KVUsage = 0.51 }), true, true},
		"usage NaN":          {kv, with(func(r *load.Report) { r.KVUsage = math.NaN() }), false, false},
		"used of its total":  {kv, with(func(r *load.Report) { r.KVUsed, r.KVTotal = 6, 10 }), true, true},
		"used of ours":       {kv, with(func(r *load.Report) { r.KVUsed = 6 }), false, true},
		"queued":             {prefill, with(func(r *load.Report) { r.Queued = 1 }), true, true},
		"none queued":        {prefill, with(func(r *load.Report) { r.Queued = 0 }), false, true},
		"blocks do not bear": {prefill, with(func(r *load.Report) { r.KVUsage = 1 }), false, false},
		"either":             {both, with(func(r *load.Report) { r.KVUsage, r.Queued = 0.1, 3 }), true, true},
		"neither":            {both, with(func(r *load.Report) { r.KVUsage, r.Queued = 0.1, 0 }), false, true},
		"one is known":       {both, with(func(r *load.Report) { r.KVUsage = 0.9 }), true, true},
	} {
		t.Run(name, func(t *testing.T) {
			if over, ok := c.o.Reported(c.r, 100); over != c.over || ok != c.ok {
				t.Errorf("got %v, %v; want %v, %v", over, ok, c.over, c.ok)
			}
		})
	}
}

func TestAFreshReportOverridesTheProjection(t *testing.T) {
	const projected = 7.5
	for name, c := range map[string]struct {
		r     load.Report
		total int64
		at    float64
		want  float64
	}{
		"used":              {with(func(r *load.Report) { r.KVUsed, r.KVUsage = 40, 0.9 }), 100, 5, 40},
		"used, 0":           {with(func(r *load.Report) { r.KVUsed = 0 }), 100, 5, 0},
		"a part of ours":    {with(func(r *load.Report) { r.KVUsage = 0.25 }), 100, 5, 25},
		"a part of its own": {with(func(r *load.Report) { r.KVUsage, r.KVTotal = 0.25, 200 }), 100, 5, 50},
		"a part of nothing": {with(func(r *load.Report) { r.KVUsage = 0.25 }), 0, 5, projected},
		"too old":           {with(func(r *load.Report) { r.KVUsed = 40 }), 100, 5.001, projected},
		"silent":            {silent(), 100, 0, projected},
		"never made":        {with(func(r *load.Report) { r.KVUsed, r.At = 40, time.Time{} }), 100, 0, projected},
	} {
		t.Run(name, func(t *testing.T) {
			if got := c.r.UsedBlocks(projected, c.total, at(c.at), 5*time.Second); got != c.want {
				t.Errorf("got %v; want %v", got, c.want)
			}
		})
	}
}

func TestTheLatchHoldsUntilAnIntervalWasClean(t *testing.T) {
	const interval = 2 * time.Second
	type seen struct {
		at                             float64
		projected, reported, hasReport bool
		want                           bool
	}
	for name, steps := range map[string][]seen{
		"both together": {
			{0, true, false, true, false}, {1, false, true, true, false}, {2, true, true, true, true},
		},
		"ours alone without a report": {
			{0, false, false, false, false}, {1, true, false, false, true},
		},
		"what has no report says nothing": {
			{0, false, true, false, false}, {1, true, true, false, true},
		},
		"one clean interval releases": {
			{0, true, true, true, true}, {1, true, false, true, true}, {1.999, false, false, true, true}, {2, false, true, true, false}, {3, true, false, true, false},
		},
		"a new overload begins the interval anew": {
			{0, true, true, true, true}, {1, false, false, true, true}, {1.5, true, true, true, true}, {3, false, false, true, true}, {3.5, false, false, true, false},
		},
		"an earlier time does not shorten it": {
			{1, true, false, false, true}, {0, true, false, false, true}, {2.5, false, false, false, true}, {3, false, false, false, false},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var l load.Latch
			for i, s := range steps {
				if got := l.Observe(s.projected, s.reported, s.hasReport, at(s.at), interval); got != s.want {
					t.Errorf("step %d: got %v; want %v", i, got, s.want)
				}
			}
		})
	}
}
