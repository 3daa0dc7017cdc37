package cli

import (
	"context"
	"io"

	"github.com/spf13/cobra"
)

// Commands are the commands over the admin API, to be added to a root. Wrong
// use is a *UsageError or an error of cobra's own; what the router refuses is
// an *APIError.
func Commands() []*cobra.Command {
	return []*cobra.Command{moduleCommand(), policyCommand(), workerCommand(), decisionsCommand()}
}

// action is what a command does once the router is known.
type action func(ctx context.Context, call *call) error

// call is one run of a command.
type call struct {
	client *Client
	args   []string
	out    io.Writer
	in     io.Reader
	json   bool
	width  int // of a line; 0 for any
}

// run makes a command's function from an action.
func (t *target) run(do action) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		client, err := t.client()
		if err != nil {
			return err
		}
		return do(cmd.Context(), &call{client: client, args: args, out: cmd.OutOrStdout(), in: cmd.InOrStdin(), json: t.output == "json", width: lineWidth(cmd.OutOrStdout())})
	}
}

// group is a command that only has subcommands.
func group(use, short, example string, t *target, subs ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{
		Use: use, Short: short, Example: example, Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usage("unknown subcommand %q (see %s --help)", args[0], cmd.CommandPath())
			}
			return cmd.Help()
		},
	}
	t.flags(c)
	c.AddCommand(subs...)
	return c
}
