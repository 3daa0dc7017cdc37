package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
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
	cmd.Flags().StringVar(&use, "use", "", "instead of a FILE: a single scorer, builtin:NAME or module:NAME")
	cmd.Flags().StringVar(&config, "config", "", "with --use: the scorer's configuration (JSON)")
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
