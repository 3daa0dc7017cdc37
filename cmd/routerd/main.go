// Command routerd routes requests to LLM inference workers. Each subcommand is
// one file; what they run lives in internal/app, sim, host and internal/cli.
package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/routerd/routerd/host"
	"github.com/routerd/routerd/internal/app"
	"github.com/routerd/routerd/internal/cli"
	"github.com/routerd/routerd/internal/config"
	"github.com/routerd/routerd/sim"
)

// Exit codes, as in docs/reference/cli.md.
const (
	exitFailed = 1
	exitUsage  = 2
	exitGrace  = 3
)

// version is set by the linker.
var version = "dev" //nolint:gochecknoglobals // the linker can set only a package variable

func main() {
	host.RunCompileChild() // ends the process when it was started as one
	os.Exit(run(os.Args[1:]))
}

func run(args []string) int {
	root := command()
	root.SetArgs(args)
	err := root.Execute()
	if err == nil {
		return 0
	}
	fmt.Fprintln(os.Stderr, "routerd:", err)
	return exitCode(err)
}

// usageError is a command line or configuration that does not make sense.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func exitCode(err error) int {
	if _, ok := errors.AsType[usageError](err); ok {
		return exitUsage
	}
	if _, ok := errors.AsType[*config.Error](err); ok {
		return exitUsage
	}
	if _, ok := errors.AsType[*cli.UsageError](err); ok {
		return exitUsage
	}
	if errors.Is(err, app.ErrGrace) {
		return exitGrace
	}
	return exitFailed
}

func command() *cobra.Command {
	root := &cobra.Command{
		Use:           "routerd",
		Short:         "Route requests to the LLM worker that a Wasm policy chooses",
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.NoArgs,
		RunE:          help,
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddCommand(serveCommand(), demoCommand(), configCommand(), pluginCommand(), versionCommand(), sim.Command())
	root.AddCommand(cli.Commands()...)
	markUsage(root)
	return root
}

// help is what a command does that only holds others.
func help(cmd *cobra.Command, _ []string) error { return cmd.Help() }

// markUsage makes bad flags and arguments of every command usage errors.
func markUsage(c *cobra.Command) {
	c.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if near := nearestFlag(cmd, err); near != "" {
			err = fmt.Errorf("%w; the nearest known one is --%s", err, near)
		}
		return usageError{err}
	})
	if args := c.Args; args != nil {
		c.Args = func(cmd *cobra.Command, a []string) error {
			if err := args(cmd, a); err != nil {
				return usageError{fmt.Errorf("%w (see %s --help)", err, cmd.CommandPath())}
			}
			return nil
		}
	}
	for _, sub := range c.Commands() {
		markUsage(sub)
	}
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Example: "  routerd version", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), "routerd", version)
			return err
		},
	}
}
