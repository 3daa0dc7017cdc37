package selection

import (
	"context"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/valyala/fasthttp"

	"github.com/routerd/routerd/internal/httpapi"
)

func (s *Server) showOpenAPI(_ context.Context, x *exchange) error {
	return x.reply(fasthttp.StatusOK, OpenAPI())
}

// OpenAPI is the API's description (OpenAPI 3.1) as a value for encoding/json.
// It has every status that a request to one of the paths can get by a method that
// the path takes.
func OpenAPI() map[string]any {
	paths := map[string]map[string]any{}
	for _, r := range routes() {
		if paths[r.pattern] == nil {
			paths[r.pattern] = map[string]any{}
		}
		paths[r.pattern][strings.ToLower(r.method)] = r.operation()
	}
	return map[string]any{
		"openapi":  "3.1.0",
		"info":     map[string]any{"title": "routerd selection service", "version": "1"},
		"security": []any{map[string]any{}, map[string]any{"bearer": []string{}}}, // the token is asked for where one is configured
		"paths":    paths,
		"components": map[string]any{
			"securitySchemes": map[string]any{"bearer": map[string]any{"type": "http", "scheme": "bearer"}},
			"schemas":         map[string]any{"Error": httpapi.ErrorSchema()},
		},
	}
}

func (r *route) operation() map[string]any {
	op := map[string]any{"summary": r.doc, "operationId": r.operationID(), "responses": r.responses()}
	if r.public {
		op["security"] = []any{}
	}
	var params []any
	if strings.Contains(r.pattern, "{id}") {
		params = append(params, httpapi.PathParam("id"))
	}
	for _, p := range r.query {
		params = append(params, p.describe("query"))
	}
	for _, p := range r.headers {
		params = append(params, p.describe("header"))
	}
	if params != nil {
		op["parameters"] = params
	}
	if r.body == jsonBody {
		op["requestBody"] = map[string]any{
			"required": !r.bare, "content": httpapi.Content(contentJSON, httpapi.BodySchema(reflect.TypeOf(r.in))),
		}
	}
	return op
}

func (p param) describe(in string) map[string]any {
	return map[string]any{"name": p.name, "in": in, "description": p.doc, "schema": map[string]any{"type": "string"}}
}

// operationID is the method and the words of the path.
func (r *route) operationID() string {
	id := strings.ToLower(r.method)
	for _, word := range strings.FieldsFunc(r.pattern, func(c rune) bool { return strings.ContainsRune("/{}._", c) }) {
		id += strings.ToUpper(word[:1]) + word[1:]
	}
	return id
}

// refusals are the statuses of errors: the route's own, and those of every request
// that cannot be read, is not well-formed, or has not the token that is asked for.
func (r *route) refusals() []int {
	all := append([]int{400, 408, 431, 500}, r.refused...)
	if !r.public {
		all = append(all, 401)
	}
	if r.body == jsonBody {
		all = append(all, 413, 415)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func (r *route) responses() map[string]any {
	out := map[string]any{}
	for _, status := range r.refusals() {
		answer := map[string]any{
			"description": fasthttp.StatusMessage(status), "content": httpapi.Content(contentJSON, map[string]any{"$ref": "#/components/schemas/Error"}),
		}
		if status == fasthttp.StatusTooManyRequests || status == fasthttp.StatusServiceUnavailable {
			answer["headers"] = map[string]any{fasthttp.HeaderRetryAfter: map[string]any{
				"description": "Seconds to wait before trying again.", "schema": map[string]any{"type": "integer", "minimum": 1},
			}}
		}
		out[strconv.Itoa(status)] = answer
	}
	for _, status := range r.status {
		out[strconv.Itoa(status)] = map[string]any{
			"description": fasthttp.StatusMessage(status), "content": httpapi.Content(contentJSON, httpapi.AnswerSchema(reflect.TypeOf(r.out))),
		}
	}
	return out
}
