package admin

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/host"
	"github.com/routerd/routerd/host/store"
)

// byAPI is who the API is to a policy's history.
const byAPI = "api"

type policyList struct {
	Policies []policyView `json:"policies"`
}

// policyView is a policy; its revisions have specifications only where one
// policy is shown.
type policyView struct {
	Name        string         `json:"name"`
	Active      int            `json:"active"`
	Previous    int            `json:"previous"`
	ActivatedBy string         `json:"activated_by"`
	ActivatedAt time.Time      `json:"activated_at,omitzero"`
	Drifted     bool           `json:"drifted"`
	Problem     string         `json:"problem,omitempty"`
	Stats       statsView      `json:"stats"`
	Revisions   []revisionView `json:"revisions"`
}

type statsView struct {
	Calls     uint64            `json:"calls"`
	Fallbacks uint64            `json:"fallbacks"`
	Cleaned   uint64            `json:"cleaned"`
	Abstained uint64            `json:"abstained"`
	Trips     uint64            `json:"trips"`
	Faults    map[string]uint64 `json:"faults"`
}

type revisionView struct {
	Revision int          `json:"revision"`
	State    policy.State `json:"state"`
	Spec     *policy.Spec `json:"spec,omitempty"`
	Digests  []string     `json:"digests"`
	At       time.Time    `json:"at"`
	By       string       `json:"by"`
}

type revisionAnswer struct {
	Name     string       `json:"name"`
	Revision int          `json:"revision"`
	State    policy.State `json:"state"`
	Digests  []string     `json:"digests"`
}

type activateBody struct {
	Revision int `json:"revision"`
}

type rollbackBody struct {
	To int `json:"to,omitempty"`
}

type activeAnswer struct {
	Active   int `json:"active"`
	Previous int `json:"previous"`
}

func viewPolicy(p host.PolicyInfo, specs bool) policyView {
	v := policyView{
		Name: p.Name, Active: p.Active, Previous: p.Previous, ActivatedBy: p.ActivatedBy, ActivatedAt: p.ActivatedAt,
		Drifted: p.Drifted, Problem: p.Problem, Revisions: []revisionView{},
		Stats: statsView{p.Stats.Calls, p.Stats.Fallbacks, p.Stats.Cleaned, p.Stats.Abstained, p.Stats.Trips, p.Stats.Faults},
	}
	if v.Stats.Faults == nil {
		v.Stats.Faults = map[string]uint64{}
	}
	for _, r := range p.Revisions {
		rv := revisionView{Revision: r.Number, State: r.State, Digests: append([]string{}, r.Digests...), At: r.At, By: r.By}
		if specs {
			spec := r.Spec
			rv.Spec = &spec
		}
		v.Revisions = append(v.Revisions, rv)
	}
	return v
}

func (s *Server) listPolicies(_ context.Context, x *exchange) error {
	out := policyList{Policies: []policyView{}}
	for _, p := range s.parts.Policies.List() {
		out.Policies = append(out.Policies, viewPolicy(p, false))
	}
	return x.reply(fasthttp.StatusOK, out)
}

func (s *Server) showPolicy(_ context.Context, x *exchange) error {
	p, err := s.parts.Policies.Show(x.name)
	if err != nil {
		return err
	}
	return x.reply(fasthttp.StatusOK, viewPolicy(p, true))
}

func (s *Server) putPolicy(ctx context.Context, x *exchange) error {
	body := bytes.Clone(x.rc.Request.Body()) // the specification keeps parts of it
	if err := checkObject(body, nil); err != nil {
		return err
	}
	spec, err := policy.ParseSpec(body)
	if err != nil {
		return err
	}
	info, created, err := s.parts.Policies.Put(ctx, x.name, spec, byAPI)
	if errors.Is(err, store.ErrNotFound) {
		// Of the request's body, not of its path.
		return invalid("scorers", err.Error(), "a module that is stored")
	}
	if err != nil {
		return err
	}
	x.digest = strings.Join(info.Digests, ",")
	return x.reply(putStatus(created), revisionAnswer{info.Name, info.Number, info.State, append([]string{}, info.Digests...)})
}

func (s *Server) activatePolicy(ctx context.Context, x *exchange) error {
	var in activateBody
	if err := decodeStrict(x.rc.Request.Body(), &in); err != nil {
		return err
	}
	if in.Revision < 1 {
		return invalid("revision", "is missing or below 1", "the number of a kept revision")
	}
	active, previous, err := s.parts.Policies.Activate(ctx, x.name, in.Revision, byAPI)
	return s.activated(x, active, previous, err)
}

func (s *Server) rollbackPolicy(ctx context.Context, x *exchange) error {
	var in rollbackBody
	if body := x.rc.Request.Body(); len(body) > 0 {
		if err := decodeStrict(body, &in); err != nil {
			return err
		}
	}
	if in.To < 0 {
		return invalid("to", "is below 1", "the number of a kept revision")
	}
	active, previous, err := s.parts.Policies.Rollback(ctx, x.name, in.To, byAPI)
	return s.activated(x, active, previous, err)
}

// activated answers a change of the active revision.
func (s *Server) activated(x *exchange, active, previous int, err error) error {
	if err != nil {
		return err
	}
	if p, err := s.parts.Policies.Show(x.name); err == nil {
		for _, r := range p.Revisions {
			if r.Number == active {
				x.digest = strings.Join(r.Digests, ",")
			}
		}
	}
	return x.reply(fasthttp.StatusOK, activeAnswer{active, previous})
}
