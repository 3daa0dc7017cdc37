package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/internal/jsonscan"
)

// maxDepth bounds how deep JSON bodies nest.
const maxDepth = 64

// DecodeStrict reads one JSON object into the struct that into points to. A
// key that is unknown, misspelt in its case or repeated, a wrong type, or
// anything after the object is an error that names the field.
func DecodeStrict(body []byte, into any) error {
	if err := CheckObject(body, reflect.TypeOf(into).Elem()); err != nil {
		return err
	}
	err := json.Unmarshal(body, into)
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return ofWrongType(orBody(wrong.Field), Clip(wrong.Value), typeWord(wrong.Type))
	}
	if field, ok := errors.AsType[*fleet.FieldError](err); ok {
		return field
	}
	if err != nil {
		return Invalid("body", err.Error(), "")
	}
	return nil
}

// CheckObject walks one JSON object. t says which keys are allowed where; nil
// allows all, but none twice.
func CheckObject(body []byte, t reflect.Type) error {
	if !bytes.HasPrefix(bytes.TrimLeft(body, " \t\r\n"), []byte("{")) {
		f := Invalid("body", strconv.Quote(Clip(string(body)))+" is not allowed", "a JSON object")
		f.WrongType = json.Valid(body)
		return f
	}
	if !jsonscan.Text(body) {
		return NoUnicode()
	}
	w := walker{json.NewDecoder(bytes.NewReader(body))}
	w.dec.UseNumber()
	if err := w.value(t, "", 0); err != nil {
		return err
	}
	if _, err := w.dec.Token(); !errors.Is(err, io.EOF) {
		return Invalid("body", "more than one JSON value", "one JSON object")
	}
	return nil
}

// NoUnicode refuses a body with texts that are none: two of them could be one after
// decoding.
func NoUnicode() *Failure {
	return Invalid("body", "it has a text that is no Unicode", "UTF-8, and escapes of surrogates in pairs")
}

type walker struct{ dec *json.Decoder }

func (w walker) value(t reflect.Type, path string, depth int) error {
	if depth > maxDepth {
		return Invalid("body", "it nests too deep", fmt.Sprintf("%d levels", maxDepth))
	}
	tok, err := w.dec.Token()
	if err != nil {
		return malformed(err)
	}
	if tok == nil {
		return null(t, path)
	}
	t = pointed(t)
	switch tok {
	case json.Delim('{'):
		err = w.object(t, path, depth)
	case json.Delim('['):
		var of reflect.Type
		if t != nil && t.Kind() == reflect.Slice {
			of = t.Elem()
		}
		for i := 0; w.dec.More() && err == nil; i++ {
			err = w.value(of, path+"["+strconv.Itoa(i)+"]", depth+1)
		}
	default:
		return scalar(t, tok, path)
	}
	if err != nil {
		return err
	}
	if _, err = w.dec.Token(); err != nil {
		return malformed(err)
	}
	return nil
}

// null refuses it for an element of a list or a map, and for a field that has to have
// a value: their t is no pointer. Elsewhere it leaves the field as it is.
func null(t reflect.Type, path string) error {
	if t == nil || t.Kind() == reflect.Pointer || t.Kind() == reflect.Interface || readsItself(t) {
		return nil
	}
	return ofWrongType(path, "null", typeWord(t))
}

// readsItself tells whether a type judges its own JSON.
func readsItself(t reflect.Type) bool {
	return reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]())
}

// scalar refuses a text, number or truth where t is of another kind, by its value,
// which json does not tell. What reads its JSON itself judges for itself.
func scalar(t reflect.Type, tok json.Token, path string) error {
	if t == nil || t.Kind() == reflect.Interface || readsItself(t) {
		return nil
	}
	var what string
	var fits bool
	switch v := tok.(type) {
	case string:
		what, fits = strconv.Quote(Clip(v))+" is a text", t.Kind() == reflect.String
	case json.Number:
		what, fits = Clip(v.String())+" is a number", t.Kind() >= reflect.Int && t.Kind() <= reflect.Float64
	case bool:
		what, fits = strconv.FormatBool(v)+" is a truth value", t.Kind() == reflect.Bool
	}
	if !fits {
		return ofWrongType(orBody(path), what, typeWord(t))
	}
	if n, ok := tok.(json.Number); ok {
		return inRange(t, n.String(), path)
	}
	return nil
}

// inRange refuses a whole number that a field of the type t cannot hold.
func inRange(t reflect.Type, n, path string) error {
	lowest, highest := "0", ""
	var err error
	switch kind := t.Kind(); {
	case kind >= reflect.Int && kind <= reflect.Int64:
		_, err = strconv.ParseInt(n, 10, t.Bits())
		lowest, highest = strconv.FormatInt(-1<<(t.Bits()-1), 10), strconv.FormatInt(1<<(t.Bits()-1)-1, 10)
	case kind >= reflect.Uint && kind <= reflect.Uint64:
		_, err = strconv.ParseUint(n, 10, t.Bits())
		if err != nil && strings.HasPrefix(n, "-") && strings.Trim(n, "-0123456789") == "" {
			err = strconv.ErrRange
		}
		highest = strconv.FormatUint(1<<t.Bits()-1, 10)
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, strconv.ErrRange):
		return &fleet.FieldError{Field: orBody(path), Value: Clip(n), Allowed: lowest + " to " + highest}
	}
	return ofWrongType(orBody(path), Clip(n)+" is no whole number", lowest+" to "+highest)
}

// object walks what is between the braces.
func (w walker) object(t reflect.Type, path string, depth int) error {
	fields := fieldsOf(t)
	seen := map[string]bool{}
	for w.dec.More() {
		tok, err := w.dec.Token()
		if err != nil {
			return malformed(err)
		}
		key, _ := tok.(string)
		field := join(path, Clip(key))
		f, known := fields[key]
		of := pointed(f.Type)
		switch {
		case seen[key]:
			return &fleet.FieldError{Field: field, Value: Clip(key), Allowed: "each key once"}
		case fields != nil && !known:
			return &fleet.FieldError{Field: field, Value: Clip(key), Allowed: "the fields " + strings.Join(slices.Sorted(maps.Keys(fields)), ", ")}
		case t != nil && t.Kind() == reflect.Map:
			of = t.Elem()
			if kind := t.Key().Kind(); kind >= reflect.Int && kind <= reflect.Uint64 {
				if n, err := strconv.ParseUint(key, 10, t.Key().Bits()); err != nil || strconv.FormatUint(n, 10) != key {
					return &fleet.FieldError{Field: field, Value: Clip(key), Allowed: "a whole number from 0, without leading zeros"}
				}
			}
		}
		seen[key] = true
		if known && !needsValue(f) {
			of = reflect.PointerTo(of)
		}
		if err := w.value(of, field, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// fieldsOf are the fields of a struct by their JSON names; nil for what is no struct
// or reads its JSON itself.
func fieldsOf(t reflect.Type) map[string]reflect.StructField {
	if t == nil || t.Kind() != reflect.Struct || readsItself(t) {
		return nil
	}
	fields := map[string]reflect.StructField{}
	for _, f := range membersOf(t) {
		fields[nameOf(f)] = f
	}
	return fields
}

// pointed is what a pointer, or a pointer to one, points to.
func pointed(t reflect.Type) reflect.Type {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t
}

// needsValue tells whether a field is tagged to be no null.
func needsValue(f reflect.StructField) bool {
	return slices.Contains(strings.Split(f.Tag.Get("api"), ","), "value")
}

func ofWrongType(field, what, allowed string) *Failure {
	f := Invalid(field, what, allowed)
	f.WrongType = true
	return f
}

func typeWord(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "a text"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Struct, reflect.Map:
		return "an object"
	case reflect.Float32, reflect.Float64:
		return "a number"
	default:
		return "a whole number in range"
	}
}

func malformed(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return Invalid("body", "it ends early", "valid JSON")
	}
	return Invalid("body", Clip(err.Error()), "valid JSON")
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

func orBody(field string) string {
	if field == "" {
		return "body"
	}
	return field
}
