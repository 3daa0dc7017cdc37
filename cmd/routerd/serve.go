package main

import (
	"context"
	"errors"
	"fmt"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/routerd/routerd/internal/app"
	"github.com/routerd/routerd/internal/config"
)

func serveCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "serve", Short: "Run the router", Example: "  routerd serve -c routerd.yaml", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			loaded, err := loadConfig(cmd)
			if err != nil {
				return err
			}
			return serve(cmd, loaded.Config)
		},
	}
	configFlags(c)
	return c
}

// serve runs the router until a signal comes or a part of it fails. A second
// signal ends the process at once.
func serve(cmd *cobra.Command, cfg config.Config) error {
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	router, err := app.Start(ctx, cfg, app.NewLogger(cfg.Log, cmd.ErrOrStderr()))
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(cmd.OutOrStdout(), "ready frontend=%s admin=%s\n", router.FrontendURL(), router.AdminURL()); err != nil {
		return errors.Join(err, router.Stop(context.Background()))
	}
	failed := router.Wait(ctx)
	stop()
	return errors.Join(failed, router.Stop(context.Background()))
}
