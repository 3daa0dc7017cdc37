package selection

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/valyala/fasthttp"

	"github.com/routerd/routerd/internal/httpapi"
)

//go:generate go test . -run TestTheReferenceIsFresh -update

// Reference writes docs/reference/selection-api.md from the table of routes.
func Reference() string {
	var b strings.Builder
	b.WriteString("# Selection service API\n\nGenerated from `selection`; change it there. The same as OpenAPI 3.1: `GET /openapi.json`. How to use it, and how it differs from " +
		"Dynamo's service: [the guide](../guide/selection.md).\n\n" +
		"JSON in snake_case, on a listener of its own (`selection.listen`). With `selection.token_file`, every path but `/health` needs `Authorization: Bearer TOKEN`. " +
		"A body has `Content-Type: application/json` (else 415) and at most `selection.max_body` bytes (else 413). " +
		"A field that is unknown, repeated or out of range is 400, one that is missing or of the wrong type 422; both name it. Fields without a value may be null or left out. " +
		"`model_name` and `routing_group` are `default` unless given. An `{id}` is percent-encoded; paths are compared as they are sent: dot segments and double slashes are not cleaned.\n\n" +
		"A caller that goes before its answer cancels the call. A booking whose answer could not be handed whole to the caller's socket is released again.\n\n")
	for _, r := range routes() {
		r.describe(&b)
	}
	for _, t := range fieldTables() {
		t.describe(&b)
	}
	b.WriteString("## Errors\n\n`{\"error\":{\"code\",\"message\",\"details\":{\"step\",\"item\",\"allowed\"}}}`; details that are unknown are left out. " +
		"Of a selection, `step` is why there is none; a full queue adds `policy_class`, `limit_kind` (`requests`, `raw_isl_tokens`, `cached_tokens`), `current` and `limit`. " +
		"429 and 503 have `Retry-After`. Any path can answer 400, 408 and 431 to a request that is not well-formed, not there in time or has too large a head, " +
		"404 (`route not found`), 405 (with `Allow`) and 500; 401 where a token is asked for.\n\n| step | code | status |\n|---|---|---|\n")
	for _, row := range refusals() {
		fmt.Fprintf(&b, "| `%s` | `%s` | %d |\n", row.core, row.code, row.status)
	}
	return b.String()
}

func (r *route) describe(b *strings.Builder) {
	fmt.Fprintf(b, "## %s %s\n\n%s", r.method, r.pattern, r.doc)
	if r.public {
		b.WriteString(" Public.")
	}
	b.WriteString("\n\n")
	for _, p := range r.query {
		fmt.Fprintf(b, "- `?%s=`: %s\n", p.name, p.doc)
	}
	for _, p := range r.headers {
		fmt.Fprintf(b, "- header `%s`: %s\n", p.name, p.doc)
	}
	if r.body == jsonBody {
		t := reflect.TypeOf(r.in)
		fmt.Fprintf(b, "- body: %s\n", nameFields(t, httpapi.BodySchema(t), "required: "))
	}
	if len(r.status) > 0 {
		fmt.Fprintf(b, "- answer: %s", statusWords(r.status))
		if _, free := r.out.(map[string]any); !free {
			b.WriteString("; " + answerWords(reflect.TypeOf(r.out)))
		}
		b.WriteString("\n")
	}
	if len(r.refused) > 0 {
		fmt.Fprintf(b, "- refused: %s\n", strings.Trim(strings.ReplaceAll(fmt.Sprint(r.refused), " ", ", "), "[]"))
	}
	b.WriteString("\n")
}

func statusWords(statuses []int) string {
	words := make([]string, 0, len(statuses))
	for _, s := range statuses {
		words = append(words, fmt.Sprintf("%d %s", s, fasthttp.StatusMessage(s)))
	}
	return strings.Join(words, " or ")
}

// answerWords are the fields of an answer, which may be a list or a map of objects.
func answerWords(t reflect.Type) string {
	words := ""
	switch t.Kind() {
	case reflect.Slice:
		words, t = "a list, each with ", t.Elem()
	case reflect.Map:
		words, t = "an object of objects, each with ", t.Elem()
	}
	return words + nameFields(t, httpapi.AnswerSchema(t), "always ")
}

// nameFields names the fields of a body or an answer, and the table that has them.
func nameFields(t reflect.Type, schema map[string]any, must string) string {
	always, perhaps := httpapi.Needs(t, schema)
	if len(always)+len(perhaps) == 0 {
		return "`{}`"
	}
	var parts []string
	if len(always) > 0 {
		parts = append(parts, must+codes(always))
	}
	if len(perhaps) > 0 {
		parts = append(parts, "optional: "+codes(perhaps))
	}
	return strings.Join(parts, "; ") + " ([fields](#" + anchor(tableOf(t)) + "))"
}

func codes(names []string) string { return "`" + strings.Join(names, "`, `") + "`" }
