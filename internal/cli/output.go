package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// show gets a path and prints the answer: as JSON, or as what table makes of
// it.
func show[T any](ctx context.Context, c *call, path string, table func(out io.Writer, answer T)) error {
	return send(ctx, c, "GET", path, nil, table)
}

// send calls the API and prints the answer like show. Warnings of the answer
// follow the table.
func send[T any](ctx context.Context, c *call, method, path string, in any, table func(out io.Writer, answer T)) error {
	var raw json.RawMessage
	if err := c.client.Do(ctx, method, path, in, &raw); err != nil {
		return err
	}
	if c.json {
		return c.printJSON(raw)
	}
	var answer T
	var also struct {
		Warnings []warning `json:"warnings"`
	}
	if err := errors.Join(json.Unmarshal(raw, &answer), json.Unmarshal(raw, &also)); err != nil {
		return fmt.Errorf("read the answer to %s %s: %w", method, path, err)
	}
	w := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
	table(w, answer)
	printWarnings(w, also.Warnings)
	if err := w.Flush(); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}

func (c *call) printJSON(v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("print: %w", err)
	}
	if _, err := fmt.Fprintf(c.out, "%s\n", b); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}

// gone prints that something was removed.
func (c *call) gone(what string) error {
	if c.json {
		return c.printJSON(map[string]string{"removed": what})
	}
	if _, err := fmt.Fprintf(c.out, "removed %s\n", what); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}

// row prints cells of a table. What cannot stand in a cell is escaped, so that
// no name moves a column or drives a terminal.
func row(w io.Writer, cells ...any) {
	text := make([]string, len(cells))
	for i, c := range cells {
		text[i] = cell(fmt.Sprint(c))
	}
	fmt.Fprintln(w, strings.Join(text, "\t"))
}

func cell(s string) string {
	if s == "" {
		return "-"
	}
	if strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 }) {
		return strings.Trim(fmt.Sprintf("%q", s), `"`)
	}
	return s
}

// short is a digest that fits a table.
func short(digest string) string {
	const shown = len("sha256:") + 12
	if len(digest) > shown {
		return digest[:shown]
	}
	return digest
}
