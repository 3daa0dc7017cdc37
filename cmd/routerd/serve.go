package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/internal/app"
	"github.com/routerd/routerd/internal/config"
)

func serveCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "serve", Short: "Run the router; it reads the configuration again when its file changes, and on SIGHUP", Example: "  routerd serve -c routerd.yaml", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			file, err := cmd.Flags().GetString(config.FileFlag)
			if err != nil {
				return err
			}
			watching := app.Watching(file)
			loaded, err := loadConfig(cmd)
			if err != nil {
				return err
			}
			return serve(cmd, loaded.Config, watching)
		},
	}
	configFlags(c)
	return c
}

// serve runs the router until a signal comes or a part of it fails.
func serve(cmd *cobra.Command, cfg config.Config, watching app.Option) error {
	ctx, stop := untilSignal(cmd.Context())
	defer stop()
	hangups := onHangup()
	defer hangups.stop()
	log := app.NewLog(cfg.Log, cmd.ErrOrStderr())
	again := func() (config.Config, error) {
		if err := readableAgain(cmd); err != nil {
			return config.Config{}, err
		}
		loaded, err := loadConfig(cmd)
		if err != nil {
			return config.Config{}, err
		}
		return loaded.Config, nil
	}
	router, err := app.Start(ctx, cfg, log.Logger, app.Reloading(again, log), watching)
	if app.Interrupted(ctx, err) {
		return nil
	}
	if err != nil {
		return startError(err)
	}
	hangups.do(router.Reload)
	if _, err := fmt.Fprintln(cmd.OutOrStdout(), readyLine(router)); err != nil {
		return errors.Join(err, router.Stop(context.Background()))
	}
	failed := router.Wait(ctx)
	return errors.Join(failed, router.Stop(context.Background()))
}

// readyLine tells where the router listens.
func readyLine(router *app.App) string {
	line := fmt.Sprintf("ready frontend=%s admin=%s", router.FrontendURL(), router.AdminURL())
	if at := router.SelectionAddress(); at != "" {
		line += " selection=" + at
	}
	if at := router.IndexAddress(); at != "" {
		line += " index=" + at
	}
	return line
}

// startError is why the router did not start: where the configuration names a
// policy that is not there, which only the start can tell, it is wrong.
func startError(err error) error {
	field, ok := errors.AsType[*fleet.FieldError](err)
	if ok && (strings.HasPrefix(field.Field, "routing.") || strings.HasPrefix(field.Field, "models.")) {
		return usageError{err}
	}
	return err
}
