package admin

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/valyala/fasthttp"

	"github.com/routerd/routerd/core"
)

const (
	fewDecisions  = 100
	mostDecisions = 1024
)

type decisionList struct {
	Decisions []core.DecisionRecord `json:"decisions"`
}

func (s *Server) listDecisions(_ context.Context, x *exchange) error {
	limit := fewDecisions
	if v := x.query.Get("limit"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil || n < 1 || n > mostDecisions {
			return invalid("query parameter limit", fmt.Sprintf("%q is not allowed", clip(v)), "1 to 1024")
		}
		limit = n
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

func (s *Server) showDecision(_ context.Context, x *exchange) error {
	d, ok := s.parts.Decisions.Get(x.name)
	if !ok {
		return &failure{Code: CodeNotFound, Message: "no such decision is kept", Details: Details{Item: clip(x.name), Allowed: "one of the last 1,024"}}
	}
	return x.reply(fasthttp.StatusOK, d)
}
