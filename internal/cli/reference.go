package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

//go:generate go test ../../cmd/routerd -run TestTheReferenceIsFresh -update

// Reference writes docs/reference/cli.md: every command below root with its
// example and flags.
func Reference(root *cobra.Command) string {
	var b strings.Builder
	b.WriteString("# Command line\n\nGenerated from the commands; change it there.\n\n" +
		"Exit codes: 0 ok, 1 failed, 2 wrong usage or configuration, 3 the grace ran out with requests under way. Errors are one line on standard error.\n\n" +
		"Commands that work on a running router find it by `--admin-url`, else `$ROUTERD_ADMIN_URL`, else at the default address; its token by `--token-file` or `--data-dir`, " +
		"else `$ROUTERD_ADMIN_TOKEN`, else as `admin.token` in the default `data_dir`.\n")
	for _, c := range root.Commands() {
		reference(&b, c)
	}
	return b.String()
}

func reference(b *strings.Builder, c *cobra.Command) {
	if c.Hidden || c.Name() == "help" {
		return
	}
	about := c.Short + "."
	if c.Long != "" { // as the command's help
		about = strings.TrimSpace(c.Long)
	}
	fmt.Fprintf(b, "\n## %s\n\n%s\n", c.CommandPath()+strings.TrimPrefix(c.Use, c.Name()), about)
	if c.Example != "" {
		fmt.Fprintf(b, "\n```\n%s\n```\n", strings.ReplaceAll(strings.TrimSpace(c.Example), "\n  ", "\n"))
	}
	list := ""
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if f.Name == "help" || f.Hidden {
			return
		}
		name := "--" + f.Name
		if f.Shorthand != "" {
			name += ", -" + f.Shorthand
		}
		list += fmt.Sprintf("- `%s`: %s", name, f.Usage)
		if f.DefValue != "" && f.DefValue != "false" && f.DefValue != "0" && f.DefValue != "[]" {
			list += fmt.Sprintf(" (default `%s`)", f.DefValue)
		}
		list += "\n"
	})
	if list != "" {
		b.WriteString("\n" + list)
	}
	for _, sub := range c.Commands() {
		reference(b, sub)
	}
}
