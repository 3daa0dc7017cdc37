package admin

import (
	"context"
	"reflect"
	"strconv"
	"strings"

	"github.com/valyala/fasthttp"

	"github.com/routerd/routerd/internal/httpapi"
)

func (s *Server) showOpenAPI(_ context.Context, x *exchange) error {
	return x.reply(fasthttp.StatusOK, OpenAPI(s.now.Load().MetricsPublic))
}

// OpenAPI is the API's description (OpenAPI 3.1) as a value for encoding/json.
func OpenAPI(metricsPublic bool) map[string]any {
	paths := map[string]map[string]any{}
	for _, r := range routes(metricsPublic) {
		path := strings.NewReplacer("{ref}", "{id}").Replace(r.pattern)
		if paths[path] == nil {
			paths[path] = map[string]any{}
		}
		paths[path][strings.ToLower(r.method)] = r.operation()
	}
	return map[string]any{
		"openapi":  "3.1.0",
		"info":     map[string]any{"title": "routerd admin API", "version": "1"},
		"security": []any{map[string]any{"bearer": []string{}}},
		"paths":    paths,
		"components": map[string]any{
			"securitySchemes": map[string]any{"bearer": map[string]any{"type": "http", "scheme": "bearer"}},
			"schemas":         map[string]any{"Error": httpapi.ErrorSchema()},
		},
	}
}

func (r *route) operation() map[string]any {
	op := map[string]any{"summary": r.doc, "operationId": r.operationID(), "responses": r.responses()}
	if r.access == public {
		op["security"] = []any{}
	}
	var params []any
	switch {
	case strings.Contains(r.pattern, "{name}"):
		params = append(params, httpapi.PathParam("name"))
	case strings.Contains(r.pattern, "{ref}"):
		params = append(params, httpapi.PathParam("id"))
	}
	for _, p := range r.query {
		params = append(params, map[string]any{"name": p.name, "in": "query", "description": p.doc, "schema": map[string]any{"type": "string"}})
	}
	if params != nil {
		op["parameters"] = params
	}
	switch r.body {
	case jsonBody:
		op["requestBody"] = map[string]any{"content": httpapi.Content("application/json", httpapi.SchemaOf(reflect.TypeOf(r.in)))}
	case moduleBody:
		op["requestBody"] = map[string]any{"required": true, "content": httpapi.Content("application/wasm", map[string]any{})}
	}
	return op
}

// operationID is the method and the words of the path.
func (r *route) operationID() string {
	id := strings.ToLower(r.method)
	for _, word := range strings.FieldsFunc(r.pattern, func(c rune) bool { return strings.ContainsRune("/{}.", c) }) {
		id += strings.ToUpper(word[:1]) + word[1:]
	}
	return id
}

func (r *route) responses() map[string]any {
	out := map[string]any{"default": map[string]any{
		"description": "An error.", "content": httpapi.Content("application/json", map[string]any{"$ref": "#/components/schemas/Error"}),
	}}
	for _, status := range r.status {
		answer := map[string]any{"description": fasthttp.StatusMessage(status)}
		switch r.out.(type) {
		case nil:
		case string:
			answer["content"] = httpapi.Content("text/plain", map[string]any{"type": "string"})
		default:
			answer["content"] = httpapi.Content("application/json", httpapi.SchemaOf(reflect.TypeOf(r.out)))
		}
		out[strconv.Itoa(status)] = answer
	}
	return out
}
