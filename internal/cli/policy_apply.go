package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/routerd/routerd/core/policy"
)

// applied is what policy apply did.
type applied struct {
	revision
	Warnings []warning `json:"warnings"`
	Columns  []string  `json:"columns"`
	Trial    *trial    `json:"trial"`
	Active   *active   `json:"-"` // where it was activated too
}

func policyApply(t *target) *cobra.Command {
	var use, config, reason string
	var activate, dry bool
	var decisions int
	cmd := &cobra.Command{
		Use: "apply NAME [FILE]", Short: "Make a revision from a specification (JSON or YAML; - is standard input)", Args: cobra.RangeArgs(1, 2),
		Long: "Make a revision from a specification (JSON or YAML; - is standard input).\n\n" +
			"A dry run tells of the recorded decisions: DECIDED, those for which the specification picked; COMPARED, those of\n" +
			"them that the active revision decides too, with the same pick (AGREED) or another (DISAGREED); REGRET, what the other\n" +
			"picks cost in all by the active revision's own totals, and MAX, the most that one of them did; EMPTIED, those for which\n" +
			"a filter left nobody; LACKING, those that were not tried because a column that the specification reads was not\n" +
			"recorded. DECISIVE counts, for each scorer, the decisions that fall otherwise without it.",
		Example: "  routerd policy apply default --use module:kv-aware --activate\n  routerd policy apply default policy.yaml --dry-run",
	}
	cmd.RunE = t.run(func(ctx context.Context, c *call) error {
		spec, err := c.spec(use, config)
		if err != nil {
			return err
		}
		switch {
		case dry && activate:
			return usage("--activate does not go with --dry-run")
		case dry && reason != "":
			return usage("--reason does not go with --dry-run, which keeps nothing")
		case dry:
			return c.try(ctx, spec, decisions)
		case cmd.Flags().Changed("decisions"):
			return usage("--decisions goes with --dry-run")
		}
		return c.apply(ctx, spec, reason, activate)
	})
	cmd.Flags().StringVar(&use, "use", "", "instead of a FILE: a single scorer, builtin:NAME or module:NAME, or a built-in whole policy")
	cmd.Flags().StringVar(&config, "config", "", "with --use: its configuration (JSON)")
	reasonFlag(cmd, &reason)
	cmd.Flags().BoolVar(&activate, "activate", false, "activate the revision")
	cmd.Flags().BoolVar(&dry, "dry-run", false, "keep nothing; try the specification on recorded decisions")
	cmd.Flags().IntVar(&decisions, "decisions", 256, "with --dry-run: on how many of the last ones, 0 to 1024")
	return cmd
}

func (c *call) apply(ctx context.Context, spec []byte, reason string, activate bool) error {
	var made applied
	if err := c.client.Do(ctx, "PUT", policyPath(c.args[0])+reasonQuery(reason), spec, &made); err != nil {
		return err
	}
	if activate {
		made.Active = &active{}
		body := because(map[string]any{"revision": made.Revision}, reason)
		if err := c.client.Do(ctx, "POST", policyPath(c.args[0])+"/activate", body, made.Active); err != nil {
			return fmt.Errorf("revision %d is made but not activated: %w", made.Revision, err)
		}
		made.State = "active"
	}
	if c.json {
		return c.printJSON(map[string]any{
			"name": made.Name, "revision": made.Revision, "state": made.State, "digests": made.Digests, "warnings": made.Warnings, "active": made.Active,
		})
	}
	text := fmt.Sprintf("policy %s revision %d %s", cell(made.Name), made.Revision, made.State)
	if made.Active != nil && made.Active.Previous != 0 {
		text += fmt.Sprintf(", previous %d", made.Active.Previous)
	}
	if made.Active != nil {
		made.Warnings = append(made.Warnings, made.Active.Warnings...)
	}
	for i := range made.Warnings {
		text += "\n" + made.Warnings[i].String()
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
		return c.specFile(c.args[1])
	}
	stage := map[string]any{"use": use}
	if config != "" {
		if !json.Valid([]byte(config)) {
			return nil, usage("--config is not valid JSON")
		}
		stage["config"] = json.RawMessage(config)
	}
	spec := map[string]any{"scorers": []any{stage}}
	if slices.Contains(policy.BuiltinPolicies(), use) {
		spec = map[string]any{"policy": stage}
	}
	b, err := json.Marshal(spec)
	if err != nil {
		return nil, errors.Join(errors.New("encode the specification"), err)
	}
	return b, nil
}

// specFile reads a specification. Where there is no such file and the name is that
// of a built-in, it says how that is named.
func (c *call) specFile(name string) ([]byte, error) {
	spec, err := c.document(name)
	use := policy.BuiltinPrefix + strings.TrimPrefix(name, policy.BuiltinPrefix)
	if !errors.Is(err, fs.ErrNotExist) || policy.Place(use) == "" {
		return spec, err
	}
	if slices.Contains(policy.BuiltinPolicies(), use) || slices.Contains(policy.Builtins(), use) {
		return nil, usage("there is no file %s; the built-in of this name is --use %s", name, use)
	}
	return nil, usage("there is no file %s; %s is %s", name, use, policy.Place(use))
}
