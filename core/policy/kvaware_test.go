package policy_test

import (
	"encoding/json"
	"errors"
	"math"
	"testing"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/plugins/abi"
)

// kvTable is two ranks and a prompt of 10 blocks: the first idle with nothing
// cached, the second with all tiers and load.
func kvTable(set policy.ColumnSet) *policy.Table {
	t := table(2, set)
	t.SetField(abi.FieldBlockSize, 16)
	t.SetField(abi.FieldISLTokens, 160)
	t.SetField(abi.FieldISLBlocks, 10)
	for c, row := range map[abi.Column][2]float64{
		abi.ColLoadPotentialPrefillTokens: {160, 320},
		abi.ColLoadPrefillTokens:          {0, 160},
		abi.ColLoadPotentialDecodeBlocks:  {10, 14},
		abi.ColLoadActiveRequests:         {0, 3},
		abi.ColKVOverlapDevice:            {0, 4},
		abi.ColKVOverlapHost:              {0, 2},
		abi.ColKVOverlapDisk:              {0, 1},
		abi.ColKVOverlapShared:            {0, 1},
	} {
		copy(t.Column(c), row[:])
	}
	return t
}

func TestKVAwareFormula(t *testing.T) {
	for name, c := range map[string]struct {
		config, overrides string
		taint             float64
		want              [2]float64
	}{
		// 160/16 + 10; 320/16 − (4 + 1.5 + 0.25 + 0.5) + 14
		"defaults":     {"", "", 1, [2]float64{-20, -27.75}},
		"prefill only": {`{"overlap_credit":0,"host_weight":0,"disk_weight":0,"shared_weight":0}`, "", 1, [2]float64{-20, -34}},
		"requests":     {`{"active_request_weight":2}`, "", 1, [2]float64{-20, -33.75}},
		"scale 0":      {`{"prefill_load_scale":0}`, "", 1, [2]float64{-10, -14}},
		// excess is 10 blocks, as long as the prompt: decay is a half.
		"decay":             {`{"credit_decay":1}`, "", 1, [2]float64{-20, -29.75}},
		"credit never pays": {`{"overlap_credit":100}`, "", 1, [2]float64{-20, -14}},
		"taint":             {"", "", 2, [2]float64{-40, -55.5}},
		"override":          {`{"active_request_weight":2}`, `{"active_request_weight":0,"host_weight":0}`, 1, [2]float64{-20, -29.25}},
	} {
		t.Run(name, func(t *testing.T) {
			spec := use("builtin:kv-aware")
			if c.config != "" {
				spec = withConfig("builtin:kv-aware", c.config)
			}
			rev := revision(t, spec, nil)
			tb := kvTable(rev.Columns())
			for i := range tb.Column(abi.ColTaintPreference) {
				tb.Column(abi.ColTaintPreference)[i] = c.taint
			}
			if c.overrides != "" {
				if err := json.Unmarshal([]byte(c.overrides), &tb.Overrides); err != nil {
					t.Fatal(err)
				}
			}
			var d policy.Decision
			if err := rev.Decide(t.Context(), tb, &d); err != nil {
				t.Fatal(err)
			}
			if got := [2]float64(d.StageScores[0]); got != c.want {
				t.Errorf("got %v; want %v", got, c.want)
			}
		})
	}
}

func TestKVAwareSurvivesHugeWeights(t *testing.T) {
	rev := revision(t, withConfig("builtin:kv-aware", `{"prefill_load_scale":1e308,"active_request_weight":1e308}`), nil)
	tb := kvTable(rev.Columns())
	var d policy.Decision
	if err := rev.Decide(t.Context(), tb, &d); err != nil {
		t.Fatal(err)
	}
	for _, v := range d.Totals {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			t.Errorf("got total %v; want a finite one", v)
		}
	}
	if d.By != policy.ByFallback || d.Fault.Reason != "nan" {
		t.Errorf("got by %s, fault %v; want the fallback, since no score is finite", d.By, d.Fault)
	}
}

func TestOverridesReachAStageOrAreRefused(t *testing.T) {
	other := scores(0)
	other.knows = "threshold"
	rev := revision(t, use("builtin:kv-aware", "module:m"), modules{"module:m": other})
	for name, c := range map[string]struct {
		overrides string
		field     string // refused; empty when allowed
	}{
		"both stages":   {`{"threshold":1,"host_weight":0}`, ""},
		"unknown":       {`{"treshold":1}`, "treshold"},
		"wrong type":    {`{"host_weight":"1"}`, "host_weight"},
		"null":          {`{"host_weight":null}`, "host_weight"},
		"out of range":  {`{"host_weight":1.01}`, "host_weight"},
		"too large":     {`{"credit_decay":1e400}`, "credit_decay"},
		"negative zero": {`{"credit_decay":-0}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var o map[string]json.RawMessage
			if err := json.Unmarshal([]byte(c.overrides), &o); err != nil {
				t.Fatal(err)
			}
			err := rev.CheckOverrides(o)
			f, _ := errors.AsType[*fleet.FieldError](err)
			if (c.field == "") != (err == nil) || f != nil && f.Field != c.field {
				t.Errorf("got %v; want a refusal of %q", err, c.field)
			}
		})
	}
}
