package admin

import (
	"context"
	"strings"

	"github.com/valyala/fasthttp"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/internal/httpapi"
)

const (
	fewDecisions  = 100
	mostDecisions = 1024
)

type decisionList struct {
	Decisions []core.DecisionRecord `json:"decisions"`
}

func (s *Server) listDecisions(_ context.Context, x *exchange) error {
	limit, err := x.number("limit", fewDecisions, 1, mostDecisions)
	if err != nil {
		return err
	}
	var f core.DecisionFilter
	f.Partition.Model = x.query.Get("partition")
	// A model's name may hold colons; the group is what follows the last one.
	if i := strings.LastIndexByte(f.Partition.Model, ':'); i >= 0 {
		f.Partition.Group = f.Partition.Model[i+1:]
		f.Partition.Model = f.Partition.Model[:i]
	}
	worker := x.query.Get("worker")
	if worker == "" {
		f.Limit = limit
	}
	out := decisionList{Decisions: []core.DecisionRecord{}}
	for _, d := range s.parts.Decisions.List(f) {
		if worker != "" && d.Pick.Name != worker && d.Pick.Worker.String() != worker {
			continue
		}
		if out.Decisions = append(out.Decisions, d); len(out.Decisions) == limit {
			break
		}
	}
	return x.reply(fasthttp.StatusOK, out)
}

// decisionAnswer is a decision, or what another revision would have made of it:
// then policy, rows, tie, pick, fault, traces and fuel are that revision's.
type decisionAnswer struct {
	core.DecisionRecord
	Pick     *core.RecordedPick `json:"pick"`               // null where the revision ends the request without one
	Recorded *core.RecordedPick `json:"recorded,omitempty"` // the pick that was made; null where there was none
	Same     *bool              `json:"same,omitempty"`     // whether it is the same
}

func (s *Server) showDecision(ctx context.Context, x *exchange) error {
	if x.query.Has("policy") {
		return s.replayDecision(ctx, x, x.query.Get("policy"))
	}
	d, ok := s.parts.Decisions.Get(x.name)
	if !ok {
		return noDecision(x.name)
	}
	return x.reply(fasthttp.StatusOK, d)
}

func noDecision(id string) *failure {
	return &failure{Code: CodeNotFound, Message: "no such decision is kept", Details: Details{Item: httpapi.Clip(id), Allowed: "one of the last 1,024"}}
}
