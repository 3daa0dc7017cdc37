package httpapi

import (
	"encoding/json"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/routerd/routerd/fleet"
)

// BodySchema describes what a body read strictly may be: an object has no other
// members than the type's fields, null stands for a pointer, list or map that is
// not given, and a number is in its type's range.
//
// A field must be given where it is neither of these three nor omitted when empty.
// The tag api says more, in words joined by commas: required; value for a field
// that may be left out but not null; min=N and max=N, of a list for its elements;
// most=N for the elements of a list or the members of an object, or for the bytes of
// a text; oneof=A|B; null for one that may be null and nothing else. The tag doc is
// what the field means.
func BodySchema(t reflect.Type) map[string]any { return describer{}.of(t, "") }

// AnswerSchema describes what a type is written as. Fields that are not omitted
// when empty are always there; pointers may be null. The tags are as in BodySchema.
func AnswerSchema(t reflect.Type) map[string]any { return describer{answer: true}.of(t, "") }

type describer struct{ answer bool }

func (d describer) of(t reflect.Type, tag string) map[string]any {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	schema := map[string]any{}
	switch {
	case t == reflect.TypeFor[json.RawMessage](), t.Kind() == reflect.Interface:
	case t == reflect.TypeFor[fleet.WorkerID]():
		schema = map[string]any{"type": "integer", "minimum": 0, "maximum": uint64(math.MaxUint64)}
		if !d.answer { // it may also be a text of its digits
			schema["type"], schema["pattern"] = []string{"integer", "string"}, "^(0|[1-9][0-9]{0,19})$"
		}
	case t.Kind() == reflect.Struct:
		schema = d.object(t)
	case t.Kind() == reflect.Slice:
		schema = map[string]any{"type": "array", "items": d.element(t.Elem())}
	case t.Kind() == reflect.Array:
		schema = map[string]any{"type": "array", "items": d.element(t.Elem()), "minItems": t.Len(), "maxItems": t.Len()}
	case t.Kind() == reflect.Map:
		schema = map[string]any{"type": "object", "additionalProperties": d.element(t.Elem())}
		if kind := t.Key().Kind(); kind >= reflect.Int && kind <= reflect.Uint64 {
			schema["propertyNames"] = map[string]any{"pattern": "^(0|[1-9][0-9]{0,8})$"}
		}
	default:
		schema = scalarSchema(t.Kind())
	}
	apply(schema, tag)
	return schema
}

// element describes what stands in a list or map, where a pointer may be null.
func (d describer) element(t reflect.Type) map[string]any {
	schema := d.of(t, "")
	if t.Kind() == reflect.Pointer {
		orNull(schema)
	}
	return schema
}

func (d describer) object(t reflect.Type) map[string]any {
	properties, required := map[string]any{}, []string{}
	for _, f := range membersOf(t) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		tag := f.Tag.Get("api")
		words := strings.Split(tag, ",")
		schema := d.of(f.Type, tag)
		omitted := strings.Contains(options, "omitempty")
		absent := f.Type.Kind() == reflect.Pointer || f.Type.Kind() == reflect.Slice || f.Type.Kind() == reflect.Map
		must := !omitted && (d.answer || !absent) || slices.Contains(words, "required")
		if must {
			required = append(required, name)
		}
		if d.answer && f.Type.Kind() == reflect.Pointer && !omitted || !d.answer && absent && !must && !slices.Contains(words, "value") {
			orNull(schema)
		}
		if doc := f.Tag.Get("doc"); doc != "" {
			schema["description"] = doc
		}
		properties[name] = schema
	}
	schema := Object(properties)
	if len(required) > 0 {
		slices.Sort(required)
		schema["required"] = required
	}
	if !d.answer {
		schema["additionalProperties"] = false
	}
	return schema
}

func scalarSchema(kind reflect.Kind) map[string]any {
	switch kind {
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.String:
		return map[string]any{"type": "string"}
	case reflect.Float32, reflect.Float64:
		return map[string]any{"type": "number"}
	case reflect.Uint32:
		return map[string]any{"type": "integer", "minimum": 0, "maximum": uint32(math.MaxUint32)}
	case reflect.Uint, reflect.Uint64:
		return map[string]any{"type": "integer", "minimum": 0, "maximum": uint64(math.MaxUint64)}
	case reflect.Int32:
		return map[string]any{"type": "integer", "minimum": math.MinInt32, "maximum": math.MaxInt32}
	default:
		return map[string]any{"type": "integer", "minimum": int64(math.MinInt64), "maximum": int64(math.MaxInt64)}
	}
}

// orNull has a schema take null as well.
func orNull(schema map[string]any) {
	switch kind := schema["type"].(type) {
	case string:
		if kind != "null" {
			schema["type"] = []string{kind, "null"}
		}
	case []string:
		schema["type"] = append(slices.Clone(kind), "null")
	}
	if values, ok := schema["enum"].([]any); ok {
		schema["enum"] = append(values, nil)
	}
}

// apply adds what a field's tag says.
func apply(schema map[string]any, tag string) {
	for word := range strings.SplitSeq(tag, ",") {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "min", "max":
			of := schema
			if items, list := schema["items"].(map[string]any); list {
				of = items
			}
			of[key+"imum"] = numberOf(value)
		case "most":
			schema[sizeOf(schema)] = numberOf(value)
		case "oneof":
			var values []any
			for v := range strings.SplitSeq(value, "|") {
				values = append(values, v)
			}
			schema["enum"] = values
		case "null":
			clear(schema)
			maps.Copy(schema, map[string]any{"type": "null"})
		}
	}
}

// numberOf is a number of a tag, whole where it can be.
func numberOf(text string) any {
	if n, err := strconv.ParseUint(text, 10, 64); err == nil {
		return n
	}
	n, _ := strconv.ParseFloat(text, 64)
	return n
}

// sizeOf is the keyword that bounds the size of a value.
func sizeOf(schema map[string]any) string {
	switch schema["type"] {
	case "array":
		return "maxItems"
	case "object":
		return "maxProperties"
	}
	return "maxLength"
}
