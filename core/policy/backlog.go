package policy

import (
	"context"
	"encoding/json"

	"github.com/routerd/routerd/plugins/abi"
)

// backlogTokens prefers the rank where the prompt is prefilled first: the cost is
// the tokens that wait there for their prefill and those of this prompt that are
// not cached there, times the preferred-taint factor.
type backlogTokens struct{ configured }

func newBacklogTokens(config json.RawMessage) (*backlogTokens, error) {
	c, err := configure(tierSettings, config)
	return &backlogTokens{c}, err
}

func (*backlogTokens) Columns() ColumnSet {
	var set ColumnSet
	addUncached(&set)
	set.AddStd(abi.ColLoadPrefillTokens, abi.ColTaintPreference)
	return set
}

func (s *backlogTokens) Score(_ context.Context, t *Table, scores []float64, _ *StageReport) (Verdict, error) {
	var (
		n      = s.asked(t)
		own    = uncachedOf(t, &n)
		queued = t.Column(abi.ColLoadPrefillTokens)[:len(scores)]
		taint  = t.Column(abi.ColTaintPreference)[:len(scores)]
	)
	for i := range scores {
		scores[i] = -float64((queued[i] + own.at(i)) * taint[i])
	}
	return Answered, nil
}

// prefillTimesBatch multiplies what cache and load cost instead of adding them,
// so that no weight between them has to be found: the tokens of this prompt that
// are not cached, at least 1, times the requests of the rank with this one, times
// the preferred-taint factor.
type prefillTimesBatch struct{ configured }

func newPrefillTimesBatch(config json.RawMessage) (*prefillTimesBatch, error) {
	c, err := configure(tierSettings, config)
	return &prefillTimesBatch{c}, err
}

func (*prefillTimesBatch) Columns() ColumnSet {
	var set ColumnSet
	addUncached(&set)
	set.AddStd(abi.ColLoadActiveRequests, abi.ColTaintPreference)
	return set
}

func (s *prefillTimesBatch) Score(_ context.Context, t *Table, scores []float64, _ *StageReport) (Verdict, error) {
	var (
		n      = s.asked(t)
		own    = uncachedOf(t, &n)
		active = t.Column(abi.ColLoadActiveRequests)[:len(scores)]
		taint  = t.Column(abi.ColTaintPreference)[:len(scores)]
	)
	for i := range scores {
		scores[i] = -float64(float64(larger(own.at(i), 1)*(active[i]+1)) * taint[i])
	}
	return Answered, nil
}
