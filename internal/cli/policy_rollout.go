package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// off instead of a revision ends what runs beside the active one.
const off = "off"

type canary struct {
	Revision int        `json:"revision"`
	Percent  float64    `json:"percent"`
	By       string     `json:"by"`
	Header   *headerVal `json:"header"`
	Since    time.Time  `json:"since"`
	Who      string     `json:"who"`
	Stats    stats      `json:"stats"`
}

type headerVal struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// String says what it takes. A header's value is left out; see withValue.
func (c *canary) String() string {
	text := fmt.Sprintf("%d at %s %% by %s", c.Revision, float(c.Percent), c.By)
	if c.Header != nil {
		text += " and header " + c.Header.Name
	}
	return text
}

// withValue is String with the header's value. The header is one that the
// operator lets policies see, which none with credentials can be.
func (c *canary) withValue() string {
	if c.Header == nil {
		return c.String()
	}
	return c.String() + "=" + c.Header.Value
}

type shadow struct {
	Revision int       `json:"revision"`
	Sample   float64   `json:"sample"`
	Since    time.Time `json:"since"`
	Who      string    `json:"who"`
	Report   report    `json:"report"`
}

// String says what it sees.
func (s *shadow) String() string { return fmt.Sprintf("%d at sample %s", s.Revision, float(s.Sample)) }

// rollout is what runs beside the active revision.
type rollout struct {
	active
	Canary *canary `json:"canary"`
	Shadow *shadow `json:"shadow"`
}

func printRollout(w io.Writer, r rollout) {
	var canary, shadow string
	if r.Canary != nil {
		canary = r.Canary.String()
	}
	if r.Shadow != nil {
		shadow = r.Shadow.String()
	}
	row(w, "ACTIVE", "PREVIOUS", "CANARY", "SHADOW")
	row(w, number(r.Active), number(r.Previous), canary, shadow)
}

// besideNumber reads a revision's number, or off as 0.
func besideNumber(text string) (int, error) {
	if text == off {
		return 0, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		return 0, usage("REVISION: %q is not allowed; allowed: the number of a revision, from 1, or off", text)
	}
	return n, nil
}

// fraction is a flag's number within bounds, so that pflag names flag, value and
// what is allowed.
type fraction struct {
	value   *float64
	allowed string
	fits    func(float64) bool
}

// String is the number.
func (f fraction) String() string {
	if f.value == nil { // pflag asks an empty one for its default
		return "0"
	}
	return strconv.FormatFloat(*f.value, 'g', -1, 64)
}

// Set reads the number.
func (f fraction) Set(text string) error {
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || !f.fits(v) { // nothing fits what is not a number
		return errors.New("allowed: " + f.allowed)
	}
	*f.value = v
	return nil
}

// Type is what the help calls it.
func (f fraction) Type() string { return "float" }

func policyShadow(t *target) *cobra.Command {
	sample := 1.0
	var reason string
	cmd := &cobra.Command{
		Use: "shadow NAME REVISION|off", Short: "Let a revision decide on the side, for nobody, or end that", Args: cobra.ExactArgs(2),
		Example: "  routerd policy shadow default 3 --sample 0.1\n  routerd policy shadow default off",
	}
	cmd.RunE = t.run(func(ctx context.Context, c *call) error {
		n, err := besideNumber(c.args[1])
		if err != nil {
			return err
		}
		body := map[string]any{"revision": n}
		switch {
		case n != 0:
			body["sample"] = sample
		case cmd.Flags().Changed("sample"):
			return usage("--sample goes with a REVISION")
		}
		return send(ctx, c, "POST", policyPath(c.args[0])+"/shadow", because(body, reason), printRollout)
	})
	reasonFlag(cmd, &reason)
	cmd.Flags().Var(fraction{&sample, "a number above 0 to 1", func(v float64) bool { return v > 0 && v <= 1 }}, "sample", "share of the active revision's decisions, above 0 to 1")
	return cmd
}

func policyCanary(t *target) *cobra.Command {
	var percent float64
	var by, header, reason string
	cmd := &cobra.Command{
		Use: "canary NAME REVISION|off", Short: "Let a revision decide for a share of the requests, or end that; what is not given is reset", Args: cobra.ExactArgs(2),
		Example: "  routerd policy canary default 3 --percent 5 --by session\n  routerd policy canary default 3 --header x-canary=yes\n  routerd policy canary default off",
	}
	cmd.RunE = t.run(func(ctx context.Context, c *call) error {
		n, err := besideNumber(c.args[1])
		if err != nil {
			return err
		}
		body := map[string]any{"revision": n}
		if cmd.Flags().Changed("percent") {
			body["percent"] = percent
		}
		if by != "" {
			body["by"] = by
		}
		if header != "" {
			name, value, ok := strings.Cut(header, "=")
			if !ok || name == "" {
				return usage("--header is not allowed; allowed: NAME=VALUE")
			}
			body["header"] = map[string]string{"name": name, "value": value}
		}
		switch {
		case n == 0 && len(body) > 1:
			return usage("--percent, --by and --header go with a REVISION")
		case n != 0 && body["percent"] == nil && header == "":
			return usage("policy canary needs --percent or --header")
		}
		return send(ctx, c, "POST", policyPath(c.args[0])+"/canary", because(body, reason), printRollout)
	})
	reasonFlag(cmd, &reason)
	cmd.Flags().Var(fraction{&percent, "a number from 0 to 100", func(v float64) bool { return v >= 0 && v <= 100 }}, "percent", "share of the requests, 0 to 100")
	cmd.Flags().StringVar(&by, "by", "", "what the share is drawn by: request or session (default request)")
	cmd.Flags().StringVar(&header, "header", "", "NAME=VALUE: also the requests with this header, whatever the share")
	return cmd
}

func policyPromote(t *target) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use: "promote NAME", Short: "Activate the revision of the canary, or else of the shadow", Example: "  routerd policy promote default", Args: cobra.ExactArgs(1),
		RunE: t.run(func(ctx context.Context, c *call) error {
			return send(ctx, c, "POST", policyPath(c.args[0])+"/promote", because(map[string]any{}, reason), printActive)
		}),
	}
	reasonFlag(cmd, &reason)
	return cmd
}
