package admin

import (
	"context"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/host"
)

// byAPI is who the API is to a policy's history.
const byAPI = "api"

type policyList struct {
	Policies []policyView `json:"policies"`
}

// policyView is a policy; specifications, limits and history are there only
// where one policy is shown.
type policyView struct {
	Name        string         `json:"name"`
	Active      int            `json:"active"`
	Previous    int            `json:"previous"`
	State       policy.State   `json:"state,omitempty"` // of the active revision
	ActivatedBy string         `json:"activated_by"`
	ActivatedAt time.Time      `json:"activated_at,omitzero"`
	Drifted     bool           `json:"drifted"`
	Problem     string         `json:"problem,omitempty"`
	Stats       statsView      `json:"stats"`  // of the active revision
	Probes      uint64         `json:"probes"` // of it while it was tripped
	Canary      *canaryView    `json:"canary"` // null for none
	Shadow      *shadowView    `json:"shadow"` // null for none
	Revisions   []revisionView `json:"revisions"`
	Limits      *policyLimits  `json:"limits,omitempty"`
	History     []host.Change  `json:"history,omitempty"` // the oldest first
}

type statsView struct {
	Calls     uint64            `json:"calls"`
	Fallbacks uint64            `json:"fallbacks"`
	Cleaned   uint64            `json:"cleaned"`
	Abstained uint64            `json:"abstained"`
	Emptied   uint64            `json:"emptied"`
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
	Stats    *statsView   `json:"stats,omitempty"` // of one that decides: the active one and the canary
}

type canaryView struct {
	Revision int         `json:"revision"`
	Percent  float64     `json:"percent"`
	By       string      `json:"by"`
	Header   *headerRule `json:"header,omitempty"`
	Since    time.Time   `json:"since"`
	Who      string      `json:"who"`
	Stats    statsView   `json:"stats"`
}

// headerRule sends the requests with a header of this value to the canary.
type headerRule struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

type shadowView struct {
	Revision int        `json:"revision"`
	Sample   float64    `json:"sample"`
	Since    time.Time  `json:"since"`
	Who      string     `json:"who"`
	Report   reportView `json:"report"`
}

// reportView is what a shadow came to since it was set or the router started.
type reportView struct {
	Seen       uint64            `json:"seen"`
	Sampled    uint64            `json:"sampled"`
	Shed       uint64            `json:"shed"`
	Decided    uint64            `json:"decided"`
	Agreed     uint64            `json:"agreed"`
	Masked     uint64            `json:"masked"`
	Regret     regretView        `json:"regret"`
	LoadSpread spreadView        `json:"load_spread"`
	Fuel       uint64            `json:"fuel"`
	Micros     int64             `json:"us"`
	Faults     map[string]uint64 `json:"faults"`
}

// regretView is in the units of the active revision's totals.
type regretView struct {
	Sum  float64 `json:"sum"`
	Mean float64 `json:"mean"`
	Max  float64 `json:"max"`
}

// spreadView is how many active requests the picked rank had above the mean of
// its candidates, on average.
type spreadView struct {
	Active float64 `json:"active"`
	Shadow float64 `json:"shadow"`
}

func viewPolicy(p *host.PolicyInfo) policyView {
	v := policyView{
		Name: p.Name, Active: p.Active, Previous: p.Previous, ActivatedBy: p.ActivatedBy, ActivatedAt: p.ActivatedAt,
		Drifted: p.Drifted, Problem: p.Problem, Stats: viewStats(&p.Stats), Probes: p.Probes, Revisions: []revisionView{},
	}
	if c := p.Canary; c != nil {
		v.Canary = viewCanary(c)
	}
	if sh := p.Shadow; sh != nil {
		v.Shadow = &shadowView{sh.Revision, sh.Sample, sh.Since, sh.Who, viewReport(&sh.Report)}
	}
	for i := range p.Revisions {
		r := &p.Revisions[i]
		rv := revisionView{Revision: r.Number, State: r.State, Digests: append([]string{}, r.Digests...), At: r.At, By: r.By}
		switch {
		case r.Number == p.Active:
			v.State, rv.Stats = r.State, &v.Stats
		case v.Canary != nil && r.Number == v.Canary.Revision:
			rv.Stats = &v.Canary.Stats
		}
		v.Revisions = append(v.Revisions, rv)
	}
	return v
}

func viewCanary(c *host.CanaryInfo) *canaryView {
	v := &canaryView{Revision: c.Revision, Percent: c.Percent, By: c.By, Since: c.Since, Who: c.Who, Stats: viewStats(&c.Stats)}
	if c.Header != "" {
		v.Header = &headerRule{c.Header, c.Value}
	}
	return v
}

func viewStats(s *policy.Stats) statsView {
	return statsView{s.Calls, s.Fallbacks, s.Cleaned, s.Abstained, s.Emptied, s.Trips, orEmpty(s.Faults)}
}

func viewReport(r *host.ShadowReport) reportView {
	return reportView{
		Seen: r.Seen, Sampled: r.Sampled, Shed: r.Shed, Decided: r.Decided, Agreed: r.Agreed, Masked: r.Masked,
		Regret: regretView{r.RegretSum, r.RegretMean, r.RegretMax}, LoadSpread: spreadView{r.LoadActive, r.LoadShadow},
		Fuel: r.Fuel, Micros: r.Time.Microseconds(), Faults: orEmpty(r.Faults),
	}
}

// orEmpty makes {} of what would be null.
func orEmpty(m map[string]uint64) map[string]uint64 {
	if m == nil {
		return map[string]uint64{}
	}
	return m
}

func (s *Server) listPolicies(_ context.Context, x *exchange) error {
	out := policyList{Policies: []policyView{}}
	for _, p := range s.parts.Policies.List() {
		out.Policies = append(out.Policies, viewPolicy(&p))
	}
	return x.reply(fasthttp.StatusOK, out)
}

func (s *Server) deletePolicy(ctx context.Context, x *exchange) error {
	why, err := x.because()
	if err != nil {
		return err
	}
	p, err := s.parts.Policies.Show(x.name)
	if err != nil {
		return err
	}
	x.digest = digestsOf(&p, p.Active)
	if err := s.parts.Policies.Remove(ctx, x.name, byAPI, why); err != nil {
		return err
	}
	x.rc.SetStatusCode(fasthttp.StatusNoContent)
	return nil
}

func (s *Server) showPolicy(_ context.Context, x *exchange) error {
	p, err := s.parts.Policies.Show(x.name)
	if err != nil {
		return err
	}
	v := viewPolicy(&p)
	for i := range v.Revisions {
		v.Revisions[i].Spec = &p.Revisions[i].Spec
	}
	v.History = p.History
	v.Limits = s.limitsOf(&p)
	return x.reply(fasthttp.StatusOK, v)
}
