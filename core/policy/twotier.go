package policy

import (
	"context"
	"encoding/json"
	"math"

	"github.com/routerd/routerd/plugins/abi"
)

// The settings of two-tier.
const (
	cacheThreshold = iota
	balanceAbs
	balanceRel
)

var twoTierSettings = settings{
	{name: "cache_threshold", unless: 0.5, high: 1},
	{name: "balance_abs_threshold", unless: 32, high: math.MaxFloat64},
	{name: "balance_rel_threshold", unless: 1.1, low: 1, high: math.MaxFloat64},
}

// twoTier is a whole policy that looks at cache and load one after the other. If
// the loads are far apart, by both thresholds, the least loaded rank is picked.
// Else, if more than a part of the prompt is in some rank's device memory, the
// least loaded of those that hold the most; the others are masked. Else the least
// loaded. The load is the number of active requests, the score its negative.
type twoTier struct{ configured }

func newTwoTier(config json.RawMessage) (*twoTier, error) {
	c, err := configure(twoTierSettings, config)
	return &twoTier{c}, err
}

func (*twoTier) Columns() ColumnSet {
	var set ColumnSet
	set.AddStd(abi.ColLoadActiveRequests, abi.ColKVOverlapDevice)
	return set
}

func (p *twoTier) Decide(_ context.Context, t *Table, scores []float64, keep []byte, _ *StageReport) (Choice, Verdict, error) {
	var (
		n      = p.asked(t)
		active = t.Column(abi.ColLoadActiveRequests)[:len(scores)]
		device = t.Column(abi.ColKVOverlapDevice)[:len(scores)]
		blocks = t.Field(abi.FieldISLBlocks)
	)
	for i, a := range active {
		scores[i] = -a
	}
	least, most := rangeKept(active, nil)
	apart := most-least > n[balanceAbs] && most > float64(n[balanceRel]*least)
	_, held := rangeKept(device, nil)
	if !apart && blocks > 0 && held/blocks > n[cacheThreshold] {
		for i := range keep {
			if device[i] != held {
				keep[i] = 0
			}
		}
	}
	return Choice{HostDraws: true}, Answered, nil
}
