package admin

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/valyala/fasthttp"

	"github.com/routerd/routerd/internal/httpapi"
)

//go:generate go test . -run TestTheReferenceIsFresh -update

// Reference writes docs/reference/admin-api.md from the table of routes.
func Reference() string {
	var b strings.Builder
	b.WriteString("# Admin API\n\nGenerated from `admin`; change it there. The same as OpenAPI 3.1: `GET /openapi.json`.\n\n" +
		"JSON in snake_case, on a listener of its own (`admin.listen`). Every path but the public ones needs `Authorization: Bearer TOKEN`; the token is in `admin.token` " +
		"in `data_dir`, or where `admin.token_file` says. `/metrics` is public when `admin.metrics_public` is true.\n\n" +
		"A `{name}` is 2 to 63 characters of a-z, 0-9, dot and hyphen, the first a letter or digit; `{id}` is a worker's id or name, or a decision's id, percent-encoded. " +
		"Paths are compared as they are sent: dot segments and double slashes are not cleaned. Unknown or repeated fields and parameters are refused by name. Every change leaves a log line `admin change`.\n\n")
	for _, r := range routes(false) {
		r.describe(&b)
	}
	b.WriteString("## Errors\n\n`{\"error\":{\"code\",\"message\",\"details\":{\"step\",\"item\",\"allowed\"}}}`; details that are unknown are left out. Statuses 405, 408 and 431 come with the codes " +
		"`unsupported`, `invalid` and `too_large`.\n\n| code | status |\n|---|---|\n")
	codes := httpapi.Codes()
	for _, c := range slices.Sorted(maps.Keys(codes)) {
		fmt.Fprintf(&b, "| `%s` | %d |\n", c, codes[c])
	}
	return b.String()
}

func (r *route) describe(b *strings.Builder) {
	fmt.Fprintf(b, "## %s %s\n\n%s", r.method, strings.ReplaceAll(r.pattern, "{ref}", "{id}"), r.doc)
	if r.access == public {
		b.WriteString(" Public.")
	}
	b.WriteString("\n\n")
	for _, p := range r.query {
		fmt.Fprintf(b, "- `?%s=`: %s\n", p.name, p.doc)
	}
	switch r.body {
	case jsonBody:
		fmt.Fprintf(b, "- body: `%s`\n", httpapi.Shape(reflect.TypeOf(r.in)))
	case moduleBody:
		b.WriteString("- body: the module's bytes\n")
	}
	var statuses []string
	for _, s := range r.status {
		statuses = append(statuses, fmt.Sprintf("%d %s", s, fasthttp.StatusMessage(s)))
	}
	fmt.Fprintf(b, "- answer: %s", strings.Join(statuses, " or "))
	switch r.out.(type) {
	case nil, map[string]any:
	case string:
		b.WriteString(", text")
	default:
		fmt.Fprintf(b, ", `%s`", httpapi.Shape(reflect.TypeOf(r.out)))
	}
	b.WriteString("\n\n")
}
