package admin

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/valyala/fasthttp"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/host"
	"github.com/routerd/routerd/internal/httpapi"
)

type activateBody struct {
	Revision *int   `json:"revision"`
	Reason   string `json:"reason,omitempty"`
}

type rollbackBody struct {
	To     int    `json:"to,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// promoteBody names no revision: what is promoted is what runs.
type promoteBody struct {
	Reason string `json:"reason,omitempty"`
}

// shadowBody sets the shadow; revision 0 ends it.
type shadowBody struct {
	Revision *int     `json:"revision"`
	Sample   *float64 `json:"sample,omitempty"` // 1 unless given
	Reason   string   `json:"reason,omitempty"`
}

// canaryBody sets the canary; revision 0 ends it.
type canaryBody struct {
	Revision *int        `json:"revision"`
	Percent  *float64    `json:"percent,omitempty"` // may be missing beside a header, and is 0 then
	By       string      `json:"by,omitempty"`
	Header   *headerRule `json:"header,omitempty"`
	Reason   string      `json:"reason,omitempty"`
}

type activeAnswer struct {
	Active   int              `json:"active"`
	Previous int              `json:"previous"`
	Warnings []policy.Warning `json:"warnings,omitempty"` // of a revision that decides now and has tripped before
}

// rolloutAnswer is what runs beside the active revision after a change.
type rolloutAnswer struct {
	activeAnswer
	Canary *canaryView `json:"canary"` // null for none
	Shadow *shadowView `json:"shadow"` // null for none
}

func (s *Server) activatePolicy(ctx context.Context, x *exchange) error {
	var in activateBody
	if err := httpapi.DecodeStrict(x.rc.Request.Body(), &in); err != nil {
		return err
	}
	if in.Revision == nil || *in.Revision < 1 {
		return httpapi.Invalid("revision", missingOr(in.Revision), "the number of a kept revision, from 1")
	}
	return s.activates(x, in.Reason, func(why host.Because) (int, int, error) {
		return s.parts.Policies.Activate(ctx, x.name, *in.Revision, byAPI, why)
	})
}

func (s *Server) rollbackPolicy(ctx context.Context, x *exchange) error {
	var in rollbackBody
	if err := decodeOptional(x.rc.Request.Body(), &in); err != nil {
		return err
	}
	if in.To < 0 {
		return httpapi.Invalid("to", missingOr(&in.To), "the number of a kept revision, from 1")
	}
	return s.activates(x, in.Reason, func(why host.Because) (int, int, error) {
		return s.parts.Policies.Rollback(ctx, x.name, in.To, byAPI, why)
	})
}

func (s *Server) promotePolicy(ctx context.Context, x *exchange) error {
	var in promoteBody
	if err := decodeOptional(x.rc.Request.Body(), &in); err != nil {
		return err
	}
	return s.activates(x, in.Reason, func(why host.Because) (int, int, error) {
		return s.parts.Policies.Promote(ctx, x.name, byAPI, why)
	})
}

// decodeOptional is decodeStrict for a body that may be empty.
func decodeOptional(body []byte, into any) error {
	if len(body) == 0 {
		return nil
	}
	return httpapi.DecodeStrict(body, into)
}

// activates makes a change of the active revision and answers it.
func (s *Server) activates(x *exchange, reason string, change func(host.Because) (active, previous int, err error)) error {
	why, err := because("reason", reason)
	if err != nil {
		return err
	}
	before, err := s.parts.Policies.Show(x.name)
	if err != nil {
		return err
	}
	out := activeAnswer{}
	if out.Active, out.Previous, err = change(why); err != nil {
		return err
	}
	if p, err := s.parts.Policies.Show(x.name); err == nil {
		x.digest = digestsOf(&p, out.Active)
		if out.Active != before.Active {
			out.Warnings = trippedBefore(&p, out.Active)
		}
	}
	return x.reply(fasthttp.StatusOK, out)
}

func (s *Server) shadowPolicy(ctx context.Context, x *exchange) error {
	var in shadowBody
	if err := httpapi.DecodeStrict(x.rc.Request.Body(), &in); err != nil {
		return err
	}
	spec := host.ShadowSpec{Sample: 1}
	var err error
	if spec.Revision, err = beside(in.Revision); err != nil {
		return err
	}
	if in.Sample != nil {
		spec.Sample = *in.Sample
		if spec.Revision == 0 {
			return httpapi.Invalid("sample", "goes with a revision", "nothing beside revision 0")
		}
	}
	why, err := because("reason", in.Reason)
	if err != nil {
		return err
	}
	_, err = s.parts.Policies.SetShadow(ctx, x.name, spec, byAPI, why)
	return s.rolled(x, spec.Revision, nil, err)
}

func (s *Server) canaryPolicy(ctx context.Context, x *exchange) error {
	var in canaryBody
	if err := httpapi.DecodeStrict(x.rc.Request.Body(), &in); err != nil {
		return err
	}
	spec, err := in.spec()
	if err == nil {
		err = s.seesHeader(spec.Header)
	}
	if err != nil {
		return err
	}
	why, err := because("reason", in.Reason)
	if err != nil {
		return err
	}
	_, err = s.parts.Policies.SetCanary(ctx, x.name, spec, byAPI, why)
	if f, ok := errors.AsType[*fleet.FieldError](err); ok && in.Header != nil {
		switch f.Field { // as the body has them
		case "header":
			f.Field = "header.name"
		case "value":
			f.Field = "header.value"
		}
	}
	return s.rolled(x, spec.Revision, trippedBefore, err)
}

func (in *canaryBody) spec() (spec host.CanarySpec, err error) {
	spec.By = in.By
	if spec.Revision, err = beside(in.Revision); err != nil {
		return spec, err
	}
	switch {
	case spec.Revision == 0 && in.Percent != nil:
		return spec, endsCanary("percent")
	case spec.Revision == 0 && in.By != "":
		return spec, endsCanary("by")
	case spec.Revision == 0 && in.Header != nil:
		return spec, endsCanary("header")
	case spec.Revision == 0:
		return spec, nil
	case in.Percent == nil && in.Header == nil:
		return spec, httpapi.Invalid("percent", "is missing", "0 to 100, or a header")
	}
	if in.Percent != nil {
		spec.Percent = *in.Percent
	}
	if in.Header != nil {
		spec.Header, spec.Value = strings.ToLower(in.Header.Name), in.Header.Value
		if spec.Header == "" {
			return spec, httpapi.Invalid("header.name", "is missing", "the name of a request header")
		}
	}
	return spec, nil
}

// endsCanary refuses a field beside revision 0.
func endsCanary(field string) error {
	return httpapi.Invalid(field, "goes with a revision; 0 ends the canary", "nothing beside revision 0")
}

// seesHeader refuses a header that requests do not bring to policies: a canary by
// it would take nothing. Those that carry credentials can not be on the list.
func (s *Server) seesHeader(name string) error {
	if name == "" || s.parts.Limits == nil {
		return nil
	}
	listed := s.parts.Limits().Headers
	if slices.Contains(listed, name) {
		return nil
	}
	allowed := "a header of plugins.headers, which is empty"
	if len(listed) > 0 {
		allowed = "a header of plugins.headers: " + strings.Join(listed, ", ")
	}
	return httpapi.Invalid("header.name", "policies do not see "+httpapi.Clip(name), allowed)
}

// missingOr says what is wrong with a revision's number.
func missingOr(n *int) string {
	if n == nil {
		return "is missing"
	}
	return strconv.Itoa(*n) + " is not allowed"
}

// beside reads the revision that is to run beside the active one. It must be
// said: 0 ends what runs.
func beside(revision *int) (int, error) {
	if revision == nil || *revision < 0 {
		return 0, httpapi.Invalid("revision", missingOr(revision), "the number of a kept revision, or 0 to end what runs")
	}
	return *revision, nil
}

// rolled answers a change of what runs beside the active revision; warn, where
// it is not nil, is asked about the revision.
func (s *Server) rolled(x *exchange, revision int, warn func(*host.PolicyInfo, int) []policy.Warning, err error) error {
	if err != nil {
		return err
	}
	p, err := s.parts.Policies.Show(x.name)
	if err != nil {
		return err
	}
	x.digest = digestsOf(&p, revision)
	v := viewPolicy(&p)
	out := rolloutAnswer{activeAnswer{Active: v.Active, Previous: v.Previous}, v.Canary, v.Shadow}
	if warn != nil {
		out.Warnings = warn(&p, revision)
	}
	return x.reply(fasthttp.StatusOK, out)
}

// digestsOf are those of a revision, for the audit line.
func digestsOf(p *host.PolicyInfo, revision int) string {
	for i := range p.Revisions {
		if p.Revisions[i].Number == revision {
			return strings.Join(p.Revisions[i].Digests, ",")
		}
	}
	return ""
}
