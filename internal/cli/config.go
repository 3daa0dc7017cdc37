package cli

import (
	"context"
	"io"
	"time"

	"github.com/spf13/cobra"
)

// ConfigReload is `config reload`, to be added to the group config, whose other
// commands work on files alone.
func ConfigReload() *cobra.Command {
	t := &target{}
	c := &cobra.Command{
		Use: "reload", Short: "Have a running router read its configuration again", Example: "  routerd config reload", Args: cobra.NoArgs,
		RunE: t.run(func(ctx context.Context, c *call) error {
			return send(ctx, c, "POST", "/v1/config/reload", nil, func(w io.Writer, got struct {
				Changed []string  `json:"changed"`
				At      time.Time `json:"at"`
			},
			) {
				if len(got.Changed) == 0 {
					row(w, "nothing has changed")
					return
				}
				row(w, "CHANGED")
				for _, key := range got.Changed {
					row(w, key)
				}
			})
		}),
	}
	t.flags(c)
	return c
}
