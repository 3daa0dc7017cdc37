package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
	ActivatedBy string     `json:"activated_by"`
	Drifted     bool       `json:"drifted"`
	Problem     string     `json:"problem"`
	Revisions   []revision `json:"revisions"`
}

type revision struct {
	Name     string          `json:"name"`
	Revision int             `json:"revision"`
	State    string          `json:"state"`
	Spec     json.RawMessage `json:"spec"`
	Digests  []string        `json:"digests"`
	At       time.Time       `json:"at"`
	By       string          `json:"by"`
}

type active struct {
	Active   int `json:"active"`
	Previous int `json:"previous"`
}

func policyCommand() *cobra.Command {
	t := &target{}
	return group("policy", "Make, activate and roll back policies of a running router", "  routerd policy apply default --use module:kv-aware --activate", t,
		&cobra.Command{
			Use: "list", Short: "List the policies", Example: "  routerd policy list", Args: cobra.NoArgs,
			RunE: t.run(listPolicies),
		},
		&cobra.Command{
			Use: "show NAME", Short: "Show a policy's revisions", Example: "  routerd policy show default", Args: cobra.ExactArgs(1),
			RunE: t.run(showPolicy),
		},
		policyApply(t),
		&cobra.Command{
			Use: "activate NAME REVISION", Short: "Make a kept revision the active one", Example: "  routerd policy activate default 2", Args: cobra.ExactArgs(2),
			RunE: t.run(func(ctx context.Context, c *call) error {
				n, err := revisionNumber("REVISION", c.args[1])
				if err != nil {
					return err
				}
				return send(ctx, c, "POST", policyPath(c.args[0])+"/activate", map[string]int{"revision": n}, printActive)
			}),
		},
		policyRollback(t),
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
			state := ""
			for _, r := range p.Revisions {
				if r.Revision == p.Active {
					state = r.State
				}
			}
			row(w, p.Name, number(p.Active), state, p.ActivatedBy, number(p.Previous), len(p.Revisions), p.note())
		}
	})
}

func (p *policyInfo) note() string {
	var notes []string
	if p.Drifted {
		notes = append(notes, "drifted")
	}
	if p.Problem != "" {
		notes = append(notes, "runs its fallback: "+p.Problem)
	}
	return strings.Join(notes, "; ")
}

func showPolicy(ctx context.Context, c *call) error {
	return show(ctx, c, policyPath(c.args[0]), func(w io.Writer, p policyInfo) {
		fmt.Fprintf(w, "policy %s, active %s, previous %s", cell(p.Name), cell(number(p.Active)), cell(number(p.Previous)))
		if n := p.note(); n != "" {
			fmt.Fprintf(w, " (%s)", cell(n))
		}
		fmt.Fprintln(w)
		row(w, "REVISION", "STATE", "MADE BY", "AT", "SPEC")
		for _, r := range p.Revisions {
			row(w, r.Revision, r.State, r.By, r.At.Format(time.RFC3339), string(r.Spec))
		}
	})
}

func policyRollback(t *target) *cobra.Command {
	var to string
	c := &cobra.Command{
		Use: "rollback NAME", Short: "Activate the revision before, or another kept one", Example: "  routerd policy rollback default", Args: cobra.ExactArgs(1),
		RunE: t.run(func(ctx context.Context, c *call) error {
			body := map[string]int{}
			if to != "" {
				n, err := revisionNumber("--to", to)
				if err != nil {
					return err
				}
				body["to"] = n
			}
			return send(ctx, c, "POST", policyPath(c.args[0])+"/rollback", body, printActive)
		}),
	}
	c.Flags().StringVar(&to, "to", "", "revision to go to (default the one before)")
	return c
}

// applied is what policy apply did.
type applied struct {
	revision
	Active *active `json:"active,omitempty"`
}

func policyApply(t *target) *cobra.Command {
	var use, config string
	var activate bool
	c := &cobra.Command{
		Use: "apply NAME [FILE]", Short: "Make a revision from a specification (JSON or YAML; - is standard input)", Args: cobra.RangeArgs(1, 2),
		Example: "  routerd policy apply default --use module:kv-aware --activate",
		RunE: t.run(func(ctx context.Context, c *call) error {
			spec, err := c.spec(use, config)
			if err != nil {
				return err
			}
			return c.apply(ctx, spec, activate)
		}),
	}
	c.Flags().StringVar(&use, "use", "", "instead of a FILE: a single scorer, builtin:NAME or module:NAME")
	c.Flags().StringVar(&config, "config", "", "with --use: the scorer's configuration (JSON)")
	c.Flags().BoolVar(&activate, "activate", false, "activate the revision")
	return c
}

func (c *call) apply(ctx context.Context, spec []byte, activate bool) error {
	var made applied
	if err := c.client.Do(ctx, "PUT", policyPath(c.args[0]), spec, &made.revision); err != nil {
		return err
	}
	if activate {
		made.Active = &active{}
		body := map[string]int{"revision": made.Revision}
		if err := c.client.Do(ctx, "POST", policyPath(c.args[0])+"/activate", body, made.Active); err != nil {
			return fmt.Errorf("revision %d is made but not activated: %w", made.Revision, err)
		}
		made.State = "active"
	}
	if c.json {
		return c.printJSON(map[string]any{
			"name": made.Name, "revision": made.Revision, "state": made.State, "digests": made.Digests, "active": made.Active,
		})
	}
	text := fmt.Sprintf("policy %s revision %d %s", cell(made.Name), made.Revision, made.State)
	if made.Active != nil && made.Active.Previous != 0 {
		text += fmt.Sprintf(", previous %d", made.Active.Previous)
	}
	if _, err := fmt.Fprintln(c.out, text); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}

// spec is the specification from the file or from --use.
func (c *call) spec(use, config string) ([]byte, error) {
	switch {
	case use == "" && len(c.args) == 1:
		return nil, usage("policy apply needs a FILE or --use")
	case use != "" && len(c.args) == 2:
		return nil, usage("policy apply takes a FILE or --use, not both")
	case use == "" && config != "":
		return nil, usage("--config goes with --use")
	case use == "":
		return c.document(c.args[1])
	}
	scorer := map[string]any{"use": use}
	if config != "" {
		if !json.Valid([]byte(config)) {
			return nil, usage("--config is not valid JSON")
		}
		scorer["config"] = json.RawMessage(config)
	}
	b, err := json.Marshal(map[string]any{"scorers": []any{scorer}})
	if err != nil {
		return nil, errors.Join(errors.New("encode the specification"), err)
	}
	return b, nil
}
