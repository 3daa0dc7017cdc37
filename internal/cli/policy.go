package cli

import (
	"context"
	"encoding/json"
	"io"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

type policyInfo struct {
	Name        string     `json:"name"`
	Active      int        `json:"active"`
	Previous    int        `json:"previous"`
	State       string     `json:"state"`
	ActivatedBy string     `json:"activated_by"`
	Drifted     bool       `json:"drifted"`
	Problem     string     `json:"problem"`
	Canary      *canary    `json:"canary"`
	Shadow      *shadow    `json:"shadow"`
	Revisions   []revision `json:"revisions"`
	Limits      limits     `json:"limits"`
	History     []change   `json:"history"`
}

type revision struct {
	Name     string          `json:"name"`
	Revision int             `json:"revision"`
	State    string          `json:"state"`
	Spec     json.RawMessage `json:"spec"`
	Digests  []string        `json:"digests"`
	At       time.Time       `json:"at"`
	By       string          `json:"by"`
	Stats    *stats          `json:"stats"`
}

type active struct {
	Active   int       `json:"active"`
	Previous int       `json:"previous"`
	Warnings []warning `json:"warnings,omitempty"`
}

func policyCommand() *cobra.Command {
	t := &target{}
	return group("policy", "Make, try, activate, roll back and remove policies of a running router", "  routerd policy apply default --use module:kv-aware --activate", t,
		&cobra.Command{
			Use: "list", Short: "List the policies", Example: "  routerd policy list", Args: cobra.NoArgs,
			RunE: t.run(listPolicies),
		},
		&cobra.Command{
			Use: "show NAME", Short: "Show a policy's revisions, what runs beside the active one, limits and history", Example: "  routerd policy show default", Args: cobra.ExactArgs(1),
			RunE: t.run(showPolicy),
		},
		policyApply(t),
		policyActivate(t),
		policyShadow(t),
		policyCanary(t),
		policyPromote(t),
		policyRollback(t),
		policyRemove(t),
	)
}

func policyPath(name string) string { return "/v1/policies/" + url.PathEscape(name) }

func revisionNumber(what, text string) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		return 0, usage("%s: %q is not allowed; allowed: the number of a revision, from 1", what, text)
	}
	return n, nil
}

func printActive(w io.Writer, a active) {
	row(w, "ACTIVE", "PREVIOUS")
	row(w, a.Active, number(a.Previous))
}

// number is a revision's number, or nothing.
func number(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

func listPolicies(ctx context.Context, c *call) error {
	return show(ctx, c, "/v1/policies", func(w io.Writer, got struct {
		Policies []policyInfo `json:"policies"`
	},
	) {
		row(w, "NAME", "ACTIVE", "STATE", "SET BY", "PREVIOUS", "REVISIONS", "NOTE")
		for _, p := range got.Policies {
			row(w, p.Name, number(p.Active), p.State, p.ActivatedBy, number(p.Previous), len(p.Revisions), p.note())
		}
	})
}

func (p *policyInfo) note() string {
	var notes []string
	if p.Drifted {
		notes = append(notes, "drifted")
	}
	if p.Canary != nil {
		notes = append(notes, "canary "+p.Canary.String())
	}
	if p.Shadow != nil {
		notes = append(notes, "shadow "+p.Shadow.String())
	}
	if p.Problem != "" {
		notes = append(notes, "runs its fallback: "+p.Problem)
	}
	return strings.Join(notes, "; ")
}
