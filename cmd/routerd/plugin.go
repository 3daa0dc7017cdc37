package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/routerd/routerd/host/pack"
	"github.com/routerd/routerd/internal/durable"
)

func pluginCommand() *cobra.Command {
	c := &cobra.Command{Use: "plugin", Short: "Make guest modules", Args: cobra.NoArgs, RunE: help}
	c.AddCommand(packCommand())
	return c
}

// packCommand finishes a compiled module. It runs the module in this process,
// so it is for one's own modules.
func packCommand() *cobra.Command {
	var manifest, out, config string
	c := &cobra.Command{
		Use:   "pack MODULE.wasm",
		Short: "Append the manifest to a module and write the fuel limits that it needs",
		Long: "Append the manifest to a module and write the fuel limits that it needs: twice what the\n" +
			"self-test's frames use, or the manifest's own limit where that is larger. The module is run in this process: pack your own modules only.",
		Example: "  routerd plugin pack --manifest manifest.json scorer.wasm -o dist/scorer.wasm",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if manifest == "" || out == "" {
				return usageError{errors.New("--manifest and --output are required")}
			}
			text, err := os.ReadFile(manifest)
			if err != nil {
				return err
			}
			wasm, err := os.ReadFile(args[0])
			if err != nil {
				return err
			}
			packed, report, err := pack.Pack(cmd.Context(), wasm, text, json.RawMessage(config))
			if err != nil {
				return err
			}
			if err := durable.WriteFile(out, packed, 0o644); err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s %s %d bytes, fuel_base %d%s, fuel_per_row %d%s\n", out, report.Digest, report.Size,
				report.FuelBase, declared(report.BaseDeclared), report.FuelPerRow, declared(report.PerRowDeclared))
			return err
		},
	}
	c.Flags().StringVar(&manifest, "manifest", "", "the module's manifest (JSON)")
	c.Flags().StringVarP(&out, "output", "o", "", "where to write the packed module")
	c.Flags().StringVar(&config, "config", "{}", "configuration (JSON) that the module is measured with")
	return c
}

// declared says that a limit is the manifest's own.
func declared(own bool) string {
	if own {
		return " (declared)"
	}
	return ""
}
