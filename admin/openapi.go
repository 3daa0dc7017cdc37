package admin

import (
	"context"
	"encoding"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/routerd/routerd/fleet"
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
			"schemas":         map[string]any{"Error": errorSchema()},
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
		params = append(params, pathParam("name"))
	case strings.Contains(r.pattern, "{ref}"):
		params = append(params, pathParam("id"))
	}
	for _, p := range r.query {
		params = append(params, map[string]any{"name": p.name, "in": "query", "description": p.doc, "schema": map[string]any{"type": "string"}})
	}
	if params != nil {
		op["parameters"] = params
	}
	switch r.body {
	case jsonBody:
		op["requestBody"] = map[string]any{"content": content("application/json", schemaOf(reflect.TypeOf(r.in)))}
	case moduleBody:
		op["requestBody"] = map[string]any{"required": true, "content": content("application/wasm", map[string]any{})}
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
		"description": "An error.", "content": content("application/json", map[string]any{"$ref": "#/components/schemas/Error"}),
	}}
	for _, status := range r.status {
		answer := map[string]any{"description": fasthttp.StatusMessage(status)}
		switch r.out.(type) {
		case nil:
		case string:
			answer["content"] = content("text/plain", map[string]any{"type": "string"})
		default:
			answer["content"] = content("application/json", schemaOf(reflect.TypeOf(r.out)))
		}
		out[strconv.Itoa(status)] = answer
	}
	return out
}

func pathParam(name string) map[string]any {
	return map[string]any{"name": name, "in": "path", "required": true, "schema": map[string]any{"type": "string"}}
}

func content(kind string, schema map[string]any) map[string]any {
	return map[string]any{kind: map[string]any{"schema": schema}}
}

func errorSchema() map[string]any {
	codes := []string{}
	for c := range maps.Keys(Codes()) {
		codes = append(codes, string(c))
	}
	slices.Sort(codes)
	text := map[string]any{"type": "string"}
	return object(map[string]any{"error": object(map[string]any{
		"code": map[string]any{"type": "string", "enum": codes}, "message": text,
		"details": object(map[string]any{"step": text, "item": text, "allowed": text}),
	})})
}

func object(properties map[string]any) map[string]any {
	return map[string]any{"type": "object", "properties": properties}
}

// schemaOf describes the JSON of a Go type.
func schemaOf(t reflect.Type) map[string]any {
	switch t {
	case reflect.TypeFor[time.Time]():
		return map[string]any{"type": "string", "format": "date-time"}
	case reflect.TypeFor[json.RawMessage]():
		return map[string]any{}
	case reflect.TypeFor[fleet.WorkerID]():
		return map[string]any{"type": []string{"integer", "string"}, "minimum": 0}
	}
	if t.Implements(reflect.TypeFor[encoding.TextMarshaler]()) {
		return map[string]any{"type": "string"}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return schemaOf(t.Elem())
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.String:
		return map[string]any{"type": "string"}
	case reflect.Float32, reflect.Float64:
		return map[string]any{"type": "number"}
	case reflect.Slice, reflect.Array:
		return map[string]any{"type": "array", "items": schemaOf(t.Elem())}
	case reflect.Map:
		return map[string]any{"type": "object", "additionalProperties": schemaOf(t.Elem())}
	case reflect.Struct:
		properties := map[string]any{}
		for name, of := range fieldsOf(t) {
			properties[name] = schemaOf(of)
		}
		return object(properties)
	case reflect.Interface:
		return map[string]any{}
	default:
		return map[string]any{"type": "integer"}
	}
}
