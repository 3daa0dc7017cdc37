package policy

import (
	"context"
	"encoding/json"
	"math"

	"github.com/routerd/routerd/plugins/abi"
)

// The settings of consistent-hash-bounded-load.
const (
	prefixTokens = iota
	loadFactor
)

var boundedLoadSettings = settings{
	{name: "prefix_tokens", unless: DefaultPrefixTokens, low: 1, high: MaxPrefixTokens, whole: true},
	{name: "load_factor", unless: 1.25, low: 1, high: math.MaxFloat64},
}

// boundedLoad is a whole policy that sends prompts with the same beginning to the
// same rank, by rendezvous hashing of their prefix, and of a prompt without a full
// block by its session. A rank takes a request only while its active requests are
// below (all active requests + 1) / ranks × load_factor; ranks at or above that
// are masked, so that the next one in the key's order has it, and no rank gets more
// than the bound rounded up. Without a key the least loaded rank is picked.
type boundedLoad struct{ configured }

func newBoundedLoad(config json.RawMessage) (*boundedLoad, error) {
	c, err := configure(boundedLoadSettings, config)
	return &boundedLoad{c}, err
}

func (*boundedLoad) Columns() ColumnSet {
	var set ColumnSet
	addRendezvous(&set)
	set.AddStd(abi.ColLoadActiveRequests)
	return set
}

func (p *boundedLoad) Decide(_ context.Context, t *Table, scores []float64, keep []byte, _ *StageReport) (Choice, Verdict, error) {
	n, active := p.asked(t), t.Column(abi.ColLoadActiveRequests)[:len(scores)]
	key := t.PrefixHash(int(n[prefixTokens]))
	if key == 0 {
		key = t.Field(abi.FieldSession)
	}
	if key == 0 {
		for i, a := range active {
			scores[i] = -a
		}
		return Choice{HostDraws: true}, Answered, nil
	}
	scoreRendezvous(t, key, scores)
	total := 0.0
	for _, a := range active {
		total += a
	}
	// The least loaded is below any bound; rounding cannot change that.
	least, bound := leastKept(active, nil), float64((total+1)/float64(len(active))*n[loadFactor])
	for i, a := range active {
		if a >= bound && a > least {
			keep[i] = 0
		}
	}
	return Choice{HostDraws: true}, Answered, nil
}
