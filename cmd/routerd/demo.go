package main

import (
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"github.com/routerd/routerd/internal/config"
	"github.com/routerd/routerd/internal/demo"
)

func demoCommand() *cobra.Command {
	o := demo.Options{}
	defaults := config.DefaultConfig()
	quiet := false
	c := &cobra.Command{
		Use: "demo", Short: "Run three simulated engines, the router and light traffic", Example: "  routerd demo", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := untilSignal(cmd.Context())
			defer stop()
			o.Traffic = !quiet
			o.Out = cmd.OutOrStdout()
			o.Terminal = isTerminal(os.Stdout)
			o.Log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
			return demo.Run(ctx, o)
		},
	}
	c.Flags().StringVar(&o.Frontend, "frontend.listen", defaults.Frontend.Listen, "address of the frontend, HOST:PORT")
	c.Flags().StringVar(&o.Admin, "admin.listen", defaults.Admin.Listen, "address of the admin API, HOST:PORT")
	c.Flags().StringVar(&o.Plugins, "plugins", "dist/plugins", "folder with kv-aware.wasm and least-loaded.wasm")
	c.Flags().BoolVar(&quiet, "no-traffic", false, "send no requests of its own")
	return c
}

// isTerminal tells whether f is a character device that shows a table.
func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb"
}
