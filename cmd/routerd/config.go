package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/routerd/routerd/internal/cli"
	"github.com/routerd/routerd/internal/config"
)

func configCommand() *cobra.Command {
	c := &cobra.Command{Use: "config", Short: "Look at the configuration, and have it read again", Args: cobra.NoArgs, RunE: help}
	c.AddCommand(
		&cobra.Command{
			Use: "print", Short: "Print the effective configuration and where each value came from",
			Example: "  routerd config print -c routerd.yaml", Args: cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				loaded, err := loadConfig(cmd)
				if err != nil {
					return err
				}
				text, err := loaded.YAML()
				if err != nil {
					return err
				}
				_, err = cmd.OutOrStdout().Write(text)
				return err
			},
		},
		&cobra.Command{
			Use: "check", Short: "Check the configuration and the token files that it names; warn on standard error of what is probably not meant, and say nothing else when it is right",
			Example: "  routerd config check -c routerd.yaml", Args: cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				loaded, err := loadConfig(cmd)
				if err != nil {
					return err
				}
				if bad := loaded.CheckTokens(); len(bad) > 0 {
					return usageError{&config.Error{Problems: bad}}
				}
				for _, w := range loaded.Config.Warnings() {
					if _, err := fmt.Fprintf(cmd.ErrOrStderr(), "warning: %s: %s\n", w.Key, w.Message); err != nil {
						return err
					}
				}
				return nil
			},
		},
	)
	for _, sub := range c.Commands() {
		configFlags(sub)
	}
	c.AddCommand(cli.ConfigReload())
	return c
}

// configFlags gives a command -c and a flag for every key.
func configFlags(c *cobra.Command) {
	c.Flags().StringP("config", "c", "", "configuration file (YAML)")
	config.AddFlags(c.Flags())
}

func loadConfig(cmd *cobra.Command) (*config.Loaded, error) {
	file, err := cmd.Flags().GetString("config")
	if err != nil {
		return nil, err
	}
	loaded, err := config.Load(config.Input{File: file, Env: os.Environ(), Flags: cmd.Flags()})
	if err != nil {
		if bad, ok := errors.AsType[*config.Error](err); ok {
			return nil, usageError{bad}
		}
		return nil, err
	}
	return loaded, nil
}

// readableAgain refuses a file that a reload cannot read from its beginning: of a
// pipe that was read, nothing is left, and nothing is a configuration.
func readableAgain(cmd *cobra.Command) error {
	file, err := cmd.Flags().GetString("config")
	if err != nil || file == "" {
		return err
	}
	info, err := os.Stat(file)
	if err != nil {
		return fmt.Errorf("read configuration: %w", err)
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("read configuration: %s is no regular file, which a reload could read again", file)
	}
	return nil
}

// nearestFlag is what a bad flag error adds: the known flag that is closest.
func nearestFlag(cmd *cobra.Command, err error) string {
	_, name, ok := strings.Cut(err.Error(), "unknown flag: --")
	if !ok {
		return ""
	}
	return config.NearestFlag(cmd.Flags(), name)
}
