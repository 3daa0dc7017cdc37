package cli

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"strings"

	"github.com/spf13/cobra"
)

func policyActivate(t *target) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use: "activate NAME REVISION", Short: "Make a kept revision the active one", Example: "  routerd policy activate default 2 --reason 'ticket 7'", Args: cobra.ExactArgs(2),
		RunE: t.run(func(ctx context.Context, c *call) error {
			n, err := revisionNumber("REVISION", c.args[1])
			if err != nil {
				return err
			}
			return send(ctx, c, "POST", policyPath(c.args[0])+"/activate", because(map[string]any{"revision": n}, reason), printActive)
		}),
	}
	reasonFlag(cmd, &reason)
	return cmd
}

func policyRollback(t *target) *cobra.Command {
	var to, reason string
	cmd := &cobra.Command{
		Use: "rollback NAME", Short: "End the canary; without one, activate the revision before, or another kept one", Example: "  routerd policy rollback default", Args: cobra.ExactArgs(1),
		RunE: t.run(func(ctx context.Context, c *call) error {
			body := map[string]any{}
			if to != "" {
				n, err := revisionNumber("--to", to)
				if err != nil {
					return err
				}
				body["to"] = n
			}
			return c.rollBack(ctx, because(body, reason))
		}),
	}
	cmd.Flags().StringVar(&to, "to", "", "revision to go to (default the one before)")
	reasonFlag(cmd, &reason)
	return cmd
}

// rollBack rolls a policy back and says what that did beside the active
// revision: what has ended, and what goes on and would be promoted next.
func (c *call) rollBack(ctx context.Context, body map[string]any) error {
	path := policyPath(c.args[0])
	var before, after rollout
	known := !c.json && c.client.Do(ctx, "GET", path, nil, &before) == nil
	return send(ctx, c, "POST", path+"/rollback", body, func(w io.Writer, a active) {
		printActive(w, a)
		if known && c.client.Do(ctx, "GET", path, nil, &after) == nil {
			if text := after.since(&before); text != "" {
				fmt.Fprintln(w, text)
			}
		}
	})
}

// since says what has ended since before, and what goes on.
func (r *rollout) since(before *rollout) string {
	var parts []string
	if before.Canary != nil && r.Canary == nil {
		parts = append(parts, fmt.Sprintf("canary of revision %d ended", before.Canary.Revision))
	}
	switch {
	case r.Shadow != nil:
		parts = append(parts, fmt.Sprintf("shadow of %d goes on", r.Shadow.Revision))
	case before.Shadow != nil:
		parts = append(parts, fmt.Sprintf("shadow of %d ended", before.Shadow.Revision))
	}
	return strings.Join(parts, "; ")
}

func policyRemove(t *target) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use: "rm NAME", Short: "Remove a policy that the configuration does not name", Example: "  routerd policy rm trial", Args: cobra.ExactArgs(1),
		RunE: t.run(func(ctx context.Context, c *call) error {
			if err := c.client.Do(ctx, "DELETE", policyPath(c.args[0])+reasonQuery(reason), nil, nil); err != nil {
				return err
			}
			return c.gone("policy " + c.args[0])
		}),
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the router's log: at most 256 printable characters")
	return cmd
}

func reasonFlag(cmd *cobra.Command, reason *string) {
	cmd.Flags().StringVar(reason, "reason", "", "why, for the history: at most 256 printable characters")
}

// because puts the reason, where there is one, into a body.
func because(body map[string]any, reason string) map[string]any {
	if reason != "" {
		body["reason"] = reason
	}
	return body
}

// reasonQuery is the reason for a path, empty where there is none.
func reasonQuery(reason string) string {
	if reason == "" {
		return ""
	}
	return "?" + url.Values{"reason": {reason}}.Encode()
}
