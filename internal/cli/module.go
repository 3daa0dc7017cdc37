package cli

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

type module struct {
	Name    string    `json:"name"`
	Digest  string    `json:"digest"`
	Size    int64     `json:"size"`
	At      time.Time `json:"at"`
	Kinds   []string  `json:"kinds"`
	Columns []string  `json:"columns"`
	Source  string    `json:"source"`
	Checked string    `json:"checked"`
}

// directory is how the router's module directory stands.
type directory struct {
	Path  string `json:"path"`
	Error string `json:"error"`
}

func moduleCommand() *cobra.Command {
	t := &target{}
	return group("module", "Store plugin modules in a running router", "  routerd module put kv-aware dist/plugins/kv-aware.wasm", t,
		&cobra.Command{
			Use: "list", Short: "List the stored modules", Example: "  routerd module list", Args: cobra.NoArgs,
			RunE: t.run(listModules),
		},
		modulePut(t),
		&cobra.Command{
			Use: "rm NAME", Short: "Remove a module that no policy uses", Example: "  routerd module rm kv-aware", Args: cobra.ExactArgs(1),
			RunE: t.run(func(ctx context.Context, c *call) error {
				if err := c.client.Do(ctx, "DELETE", modulePath(c.args[0]), nil, nil); err != nil {
					return err
				}
				return c.gone("module " + c.args[0])
			}),
		},
	)
}

func modulePath(name string) string { return "/v1/modules/" + url.PathEscape(name) }

func listModules(ctx context.Context, c *call) error {
	return show(ctx, c, "/v1/modules", func(w io.Writer, got struct {
		Modules   []module   `json:"modules"`
		Directory *directory `json:"directory"`
	},
	) {
		row(w, "NAME", "DIGEST", "SIZE", "SOURCE", "SINCE")
		for _, m := range got.Modules {
			row(w, m.Name, short(m.Digest), m.Size, m.Source, m.At.Format(time.RFC3339))
		}
		if d := got.Directory; d != nil && d.Error != "" {
			fmt.Fprintf(w, "The files of %s are not in force: %s\n", d.Path, d.Error)
		}
	})
}

func modulePut(t *target) *cobra.Command {
	var digest string
	var dry bool
	c := &cobra.Command{
		Use: "put NAME FILE", Short: "Check a module and store it under a name", Args: cobra.ExactArgs(2),
		Example: "  routerd module put kv-aware dist/plugins/kv-aware.wasm",
	}
	c.RunE = func(cmd *cobra.Command, args []string) error {
		given := cmd.Flags().Changed("sha256")
		return t.run(func(ctx context.Context, c *call) error {
			if given && !isDigest(digest) {
				return usage(`--sha256: %q is not allowed; allowed: 64 hexadecimal digits, with or without "sha256:"`, clip(digest))
			}
			wasm, err := c.read(c.args[1])
			if err != nil {
				return err
			}
			query := url.Values{}
			if given {
				query.Set("sha256", digest)
			}
			if dry {
				query.Set("dry_run", "true")
			}
			path := modulePath(c.args[0])
			if len(query) > 0 {
				path += "?" + query.Encode()
			}
			return send(ctx, c, "PUT", path, wasm, func(w io.Writer, m module) {
				row(w, "NAME", "DIGEST", "SIZE", "KINDS", "COLUMNS", "CHECKED")
				row(w, m.Name, m.Digest, m.Size, strings.Join(m.Kinds, ","), strings.Join(m.Columns, ","), m.Checked)
			})
		})(cmd, args)
	}
	c.Flags().StringVar(&digest, "sha256", "", "digest that the bytes must have, 64 hexadecimal digits")
	c.Flags().BoolVar(&dry, "dry-run", false, "take it through the whole load pipeline, keep nothing")
	return c
}

// isDigest tells whether a text can be the digest of a module.
func isDigest(text string) bool {
	sum, err := hex.DecodeString(strings.TrimPrefix(text, "sha256:"))
	return err == nil && len(sum) == sha256.Size
}

// clip bounds how much of a value an error repeats.
func clip(s string) string {
	const most = 80
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}

// read reads a file; - is standard input.
func (c *call) read(name string) ([]byte, error) {
	if name == "-" {
		b, err := io.ReadAll(c.in)
		if err != nil {
			return nil, fmt.Errorf("read standard input: %w", err)
		}
		return b, nil
	}
	return os.ReadFile(name)
}
