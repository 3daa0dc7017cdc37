package core_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/core/affinity"
	"github.com/routerd/routerd/core/load"
	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/core/reserve"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/kvcache"
)

// surroundings are fakes of all that a host offers.
type surroundings struct {
	mu       sync.Mutex
	reports  map[fleet.Worker]load.Report
	ruledOut map[fleet.WorkerID]bool
	shared   []kvcache.BlockRange
	down     bool     // the shared cache does not answer
	told     []string // what replicas were told
}

func newSurroundings() *surroundings {
	return &surroundings{reports: map[fleet.Worker]load.Report{}, ruledOut: map[fleet.WorkerID]bool{}}
}

func (s *surroundings) host() core.SelectionHost {
	return core.SelectionHost{Load: s, Eligibility: s, SharedCache: s, Replication: s}
}

func (s *surroundings) Report(w fleet.Worker) (load.Report, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.reports[w]
	return r, ok
}

func (s *surroundings) Narrow(_ *core.Request, workers []fleet.Worker, keep []bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, w := range workers {
		if s.ruledOut[w.ID] {
			keep[i] = false
		}
	}
}

func (s *surroundings) Hits(_ context.Context, _ fleet.PartitionKey, _ []kvcache.SequenceHash, out []kvcache.BlockRange) ([]kvcache.BlockRange, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return out, errors.New("the shared cache is down")
	}
	return append(out, s.shared...), nil
}

func (s *surroundings) tell(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.told = append(s.told, fmt.Sprintf(format, args...))
}

func (s *surroundings) Bound(key fleet.PartitionKey, e affinity.Event) {
	s.tell("bound %s %s on %s", key.Model, e.ID, nameOf(e.Worker.ID))
}

func (s *surroundings) Booked(key reserve.Key, d load.Demand) {
	s.tell("booked %s on %s: %d tokens %d blocks", key.SelectionID, nameOf(key.Worker.ID), d.PrefillTokens, int64(len(d.Blocks))+d.OwnBlocks)
}

func (s *surroundings) PrefillCompleted(key reserve.Key) {
	s.tell("prefill completed %s", key.SelectionID)
}
func (s *surroundings) Freed(key reserve.Key) { s.tell("freed %s", key.SelectionID) }

// nameOf is the name of a worker whose id comes from one of the names that tests
// use.
func nameOf(id fleet.WorkerID) string {
	for _, prefix := range []string{"w", "v", "u"} {
		for i := range 100 {
			if name := fmt.Sprint(prefix, i); fleet.IDFromName(name) == id {
				return name
			}
		}
	}
	return id.String()
}

// gate is a filter that keeps everybody and, while it is shut, keeps whoever
// decides waiting.
type gate struct {
	stage
	mu   sync.Mutex
	open chan struct{} // closed while it is open; nil for open
}

func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open == nil {
		g.open = make(chan struct{})
	}
}

func (g *gate) lift() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open != nil {
		close(g.open)
		g.open = nil
	}
}

func (g *gate) Filter(context.Context, *policy.Table, []byte, *policy.StageReport) (policy.Verdict, error) {
	g.mu.Lock()
	open := g.open
	g.mu.Unlock()
	if open != nil {
		<-open
	}
	return policy.Answered, nil
}

// oddities are stages that do one thing, mostly a wrong one.
func oddities(g *gate) kit {
	scores := func(f func(row int) float64) *stage {
		return &stage{score: func(_ context.Context, _ *policy.Table, scores []float64) error {
			for i := range scores {
				scores[i] = f(i)
			}
			return nil
		}}
	}
	return kit{
		"module:gate":   g,
		"module:nan":    scores(func(int) float64 { return math.NaN() }),
		"module:inf":    scores(func(int) float64 { return math.Inf(1) }),
		"module:short":  &partial{},
		"module:astray": &astray{},
		"module:trap":   trapping(),
		"module:none":   dropping("w1", "w2", "w3"),
		"module:w1": &stage{score: func(_ context.Context, t *policy.Table, scores []float64) error {
			for i, w := range t.Rows {
				scores[i] = map[bool]float64{true: 1}[w.ID == fleet.IDFromName("w1")]
			}
			return nil
		}},
	}
}

// partial is a filter that says something else than keep or drop.
type partial struct{ stage }

func (*partial) Filter(_ context.Context, _ *policy.Table, keep []byte, _ *policy.StageReport) (policy.Verdict, error) {
	keep[0] = 7
	return policy.Answered, nil
}

// astray picks a row that there is not.
type astray struct{ stage }

func (*astray) Pick(_ context.Context, t *policy.Table, _ []float64, _ *policy.StageReport) (policy.Choice, policy.Verdict, error) {
	return policy.Choice{Row: t.Len(), Tie: policy.Tie{Rows: 1}}, policy.Answered, nil
}
