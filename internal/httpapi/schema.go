package httpapi

import (
	"encoding"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/routerd/routerd/fleet"
)

// PathParam describes a parameter of the path.
func PathParam(name string) map[string]any {
	return map[string]any{"name": name, "in": "path", "required": true, "schema": map[string]any{"type": "string"}}
}

// Content is a body of one media type.
func Content(kind string, schema map[string]any) map[string]any {
	return map[string]any{kind: map[string]any{"schema": schema}}
}

// ErrorSchema describes a Failure's body.
func ErrorSchema() map[string]any {
	codes := []string{}
	for c := range maps.Keys(Codes()) {
		codes = append(codes, string(c))
	}
	slices.Sort(codes)
	text := map[string]any{"type": "string"}
	return Object(map[string]any{"error": Object(map[string]any{
		"code": map[string]any{"type": "string", "enum": codes}, "message": text,
		"details": Object(map[string]any{
			"step": text, "item": text, "allowed": text,
			"policy_class": text, "limit_kind": text, "current": map[string]any{"type": "integer"}, "limit": map[string]any{"type": "integer"},
		}),
	})})
}

// Object describes an object with these members.
func Object(properties map[string]any) map[string]any {
	return map[string]any{"type": "object", "properties": properties}
}

// SchemaOf describes the JSON of a Go type.
func SchemaOf(t reflect.Type) map[string]any {
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
		return SchemaOf(t.Elem())
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.String:
		return map[string]any{"type": "string"}
	case reflect.Float32, reflect.Float64:
		return map[string]any{"type": "number"}
	case reflect.Slice, reflect.Array:
		return map[string]any{"type": "array", "items": SchemaOf(t.Elem())}
	case reflect.Map:
		return map[string]any{"type": "object", "additionalProperties": SchemaOf(t.Elem())}
	case reflect.Struct:
		properties := map[string]any{}
		for name, f := range fieldsOf(t) {
			properties[name] = SchemaOf(f.Type)
		}
		return Object(properties)
	case reflect.Interface:
		return map[string]any{}
	default:
		return map[string]any{"type": "integer"}
	}
}
