package policy

import (
	"context"
	"encoding/json"

	"github.com/routerd/routerd/plugins/abi"
)

// sticky is a whole policy that keeps a session on the rank that served its first
// request, whatever the load, for as long as the rank is a candidate. It keeps
// nothing itself: where the session is bound says the column session.bound, which
// the partition's affinity table makes. A session that is not bound gets the least
// loaded rank, which it is bound to from then on, and so does a request without a
// session. Where nobody keeps bindings the column has no signal: then a session's
// rank is found by rendezvous hashing of its id.
type sticky struct{}

func (sticky) Columns() ColumnSet {
	var set ColumnSet
	addRendezvous(&set)
	set.AddStd(abi.ColSessionBound, abi.ColLoadActiveRequests)
	return set
}

func (sticky) Decide(_ context.Context, t *Table, scores []float64, keep []byte, _ *StageReport) (Choice, Verdict, error) {
	bound, session := t.Cells(abi.ColSessionBound), t.Field(abi.FieldSession)
	known, found := false, false
	for row := range scores {
		known = known || !bound.Missing(row)
		found = found || bound.values[row] == 1
	}
	if session != 0 && !known {
		scoreRendezvous(t, session, scores)
		return Choice{HostDraws: true}, Answered, nil
	}
	for i, a := range t.Column(abi.ColLoadActiveRequests)[:len(scores)] {
		scores[i] = -a
		if found && bound.values[i] != 1 {
			keep[i] = 0
		}
	}
	return Choice{HostDraws: true}, Answered, nil
}

func (sticky) CheckOverrides(map[string]json.RawMessage) ([]string, error) { return nil, nil }

func (sticky) Close() error { return nil }
