package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// drainLook is how often a wait looks how much is left.
const drainLook = 250 * time.Millisecond

func workerDrain(t *target) *cobra.Command {
	var timeout time.Duration
	var wait bool
	c := &cobra.Command{
		Use: "drain ID|NAME", Short: "Take a worker out for new requests and let it finish those that it has", Args: cobra.ExactArgs(1),
		Long: "Takes a worker of any source out for new requests. Those that it has may finish for the timeout; then they count\n" +
			"no more, though answers that still run are not cut off. It lasts, also over a restart, until undrain or until the\n" +
			"worker leaves or gets another url. With --wait the command returns when nothing is left, or with exit code 1 when\n" +
			"the timeout is over.",
		Example: "  routerd worker drain w1 --timeout 5m --wait",
	}
	c.Flags().DurationVar(&timeout, "timeout", 10*time.Minute, "how long it may finish what it has, at most 24h")
	c.Flags().BoolVar(&wait, "wait", false, "return when it has nothing left")
	c.RunE = t.run(func(ctx context.Context, c *call) error {
		path := workerPath(c.args[0])
		body := map[string]string{"timeout": timeout.String()}
		if !wait {
			return send(ctx, c, "POST", path+"/drain", body, func(w io.Writer, v worker) { printWorkers(w, v) })
		}
		if err := c.client.Do(ctx, "POST", path+"/drain", body, nil); err != nil {
			return err
		}
		return c.awaitDrain(ctx, path)
	})
	return c
}

// drainOver begins the reason of a worker whose time to drain is over.
const drainOver = "drain_over"

// awaitDrain waits until a draining worker has nothing left, or until the router
// says that its time is over: the two machines' clocks may differ.
func (c *call) awaitDrain(ctx context.Context, path string) error {
	last := int64(0) // left when it was looked at before
	look := time.NewTicker(drainLook)
	defer look.Stop()
	for {
		var raw json.RawMessage
		var v worker
		if err := c.client.Do(ctx, "GET", path, nil, &raw); err != nil {
			return err
		}
		if err := json.Unmarshal(raw, &v); err != nil {
			return fmt.Errorf("read the worker: %w", err)
		}
		left := int64(0)
		for _, r := range v.Ranks {
			left += r.Load.ActiveRequests
		}
		switch {
		case v.DrainUntil == nil:
			return fmt.Errorf("worker %s is %s: it does not drain any more", v.Name, v.Lifecycle)
		case max(left, last) > 0 && hasReason(v, drainOver):
			return fmt.Errorf("worker %s: its time is over with %d requests left", v.Name, max(left, last))
		case left == 0:
			if c.json {
				return c.printJSON(raw)
			}
			_, err := fmt.Fprintf(c.out, "worker %s has nothing left\n", v.Name)
			return err
		}
		last = left
		select {
		case <-look.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// hasReason tells whether one of the worker's reasons begins with a word.
func hasReason(v worker, word string) bool {
	return slices.ContainsFunc(v.Reasons, func(r string) bool { return strings.HasPrefix(r, word) })
}
