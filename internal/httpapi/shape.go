package httpapi

import (
	"reflect"
	"strings"
	"time"
)

// Shape is a type in the notation of the documents: {field, list[{…}]}.
func Shape(t reflect.Type) string {
	switch {
	case t.Kind() == reflect.Pointer:
		return Shape(t.Elem())
	case t == reflect.TypeFor[time.Time]():
		return ""
	case t.Kind() == reflect.Slice && t.Elem().Kind() != reflect.Uint8:
		return "[" + Shape(t.Elem()) + "]"
	case t.Kind() == reflect.Map:
		return "{KEY: " + orValue(Shape(t.Elem())) + "}"
	case fieldsOf(t) == nil:
		return ""
	}
	var parts []string
	for _, f := range membersOf(t) {
		parts = append(parts, nameOf(f)+strings.TrimSuffix(Shape(f.Type), "[]"))
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

func orValue(s string) string {
	if s == "" {
		return "value"
	}
	return s
}
