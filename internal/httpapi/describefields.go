package httpapi

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
)

// Field is a row of a table of fields.
type Field struct {
	Name string // its path in the body: parts by dots, [] for what stands in a list, KEY for what stands under any name
	Type string // with its range
	Doc  string // what it means
}

// Fields lists what bodies and answers have, each name once, as it is described
// first; of a struct that comes again the fields are not repeated. Whether a field
// at the top must be there differs between them, see Needs; of those inside objects
// the type says what is required in a body and optional in an answer.
func Fields(bodies, answers []reflect.Type) []Field {
	l := fieldList{objects: map[reflect.Type]string{}}
	for _, t := range slices.Concat(bodies, answers) {
		l.objects[t] = ""
	}
	for _, t := range bodies {
		l.members("", t, BodySchema(t))
	}
	l.answers = true
	for _, t := range answers {
		l.members("", t, AnswerSchema(t))
	}
	return l.fields
}

// Needs are the names at the top of a body or an answer: those that are always
// there, and the others.
func Needs(t reflect.Type, schema map[string]any) (always, perhaps []string) {
	required, _ := schema["required"].([]string)
	for _, f := range membersOf(t) {
		if name := nameOf(f); slices.Contains(required, name) {
			always = append(always, name)
		} else {
			perhaps = append(perhaps, name)
		}
	}
	return always, perhaps
}

type fieldList struct {
	fields  []Field
	objects map[reflect.Type]string // where they have been listed
	answers bool                    // what is listed are answers
}

// members lists those of a struct.
func (l *fieldList) members(path string, t reflect.Type, schema map[string]any) {
	properties, _ := schema["properties"].(map[string]any)
	required, _ := schema["required"].([]string)
	for _, f := range membersOf(t) {
		name := nameOf(f)
		of, _ := properties[name].(map[string]any)
		at := path + name
		if slices.ContainsFunc(l.fields, func(f Field) bool { return f.Name == at }) {
			continue
		}
		text := typeText(of)
		if must := slices.Contains(required, name); path != "" && must != l.answers {
			text += map[bool]string{true: "; required", false: "; optional"}[must]
		}
		i := len(l.fields)
		l.fields = append(l.fields, Field{at, text, f.Tag.Get("doc")})
		l.inside(i, at, f.Type, of)
	}
}

// inside lists what stands in a field, which is row i.
func (l *fieldList) inside(i int, path string, t reflect.Type, schema map[string]any) {
	for t.Kind() != reflect.Struct {
		switch t.Kind() {
		case reflect.Slice, reflect.Array:
			path += "[]"
			schema, _ = schema["items"].(map[string]any)
		case reflect.Map:
			path += ".KEY"
			schema, _ = schema["additionalProperties"].(map[string]any)
		case reflect.Pointer:
		default:
			return
		}
		t = t.Elem()
	}
	first, listed := l.objects[t]
	if !listed {
		l.objects[t] = path
		l.members(path+".", t, schema)
		return
	}
	as := "; fields as above"
	if first != "" {
		as = "; fields as in `" + first + "`"
	}
	l.fields[i].Type += as
}

// membersOf are the fields of a struct that stand in its JSON, in the order of the
// struct.
func membersOf(t reflect.Type) []reflect.StructField {
	return slices.DeleteFunc(reflect.VisibleFields(t), func(f reflect.StructField) bool {
		return f.Anonymous || !f.IsExported() || nameOf(f) == "" || nameOf(f) == "-"
	})
}

func nameOf(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}

// typeText is a schema in words.
func typeText(schema map[string]any) string {
	kind, _ := schema["type"].(string)
	if kinds, several := schema["type"].([]string); several {
		kind = kinds[0]
		if slices.Contains(kinds, "string") && kind != "string" {
			return rangeText(kind+" or text of its digits", schema)
		}
	}
	if values, ok := schema["enum"].([]any); ok {
		return oneOfText(values)
	}
	switch kind {
	case "string":
		return sizeText("text", "maxLength", " bytes", schema)
	case "boolean":
		return "true or false"
	case "array":
		items, _ := schema["items"].(map[string]any)
		text := sizeText("list", "maxItems", "", schema)
		if schema["minItems"] != nil {
			text = fmt.Sprintf("list of %v", schema["maxItems"])
		}
		return text + " of: " + typeText(items)
	case "object":
		if of, free := schema["additionalProperties"].(map[string]any); free {
			return sizeText("object", "maxProperties", "", schema) + " of: " + typeText(of)
		}
		return kind
	case "":
		return "any"
	}
	return rangeText(kind, schema)
}

func rangeText(kind string, schema map[string]any) string {
	low, up := schema["minimum"], schema["maximum"]
	switch {
	case low == nil && up == nil, low == int64(math.MinInt64) && up == int64(math.MaxInt64):
		return kind
	case up == nil:
		return fmt.Sprintf("%s, at least %v", kind, low)
	}
	return fmt.Sprintf("%s, %v to %v", kind, low, up)
}

func sizeText(kind, keyword, unit string, schema map[string]any) string {
	if most := schema[keyword]; most != nil {
		return fmt.Sprintf("%s, at most %v%s", kind, most, unit)
	}
	return kind
}

func oneOfText(values []any) string {
	var words []string
	for _, v := range values {
		if v != nil {
			words = append(words, fmt.Sprintf("`%v`", v))
		}
	}
	return strings.Join(words, ", ")
}
