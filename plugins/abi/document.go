package abi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"unicode"
	"unicode/utf8"
)

// value is one JSON value of a manifest. Reading into it instead of a struct
// keeps what encoding/json lets pass: double keys, keys in other letter case,
// and the bytes of a part that is kept raw.
type value struct {
	kind    byte // one of { [ " 0 b n: object, array, string, number, boolean, null
	text    string
	truth   bool
	members []member
	items   []*value
	raw     []byte
}

type member struct {
	key string
	val *value
}

// maxDepth bounds how deep a manifest may nest.
const maxDepth = 64

// maxString is how many characters a string of the manifest may have.
const maxString = 256

// parseDocument reads one JSON document strictly: no double keys at any depth,
// no invalid UTF-8, nothing behind the value.
func parseDocument(data []byte) (*value, error) {
	if !utf8.Valid(data) {
		return nil, refuse("manifest", "bytes that are no UTF-8", "a JSON object in UTF-8")
	}
	r := &reader{dec: json.NewDecoder(bytes.NewReader(data)), data: data}
	r.dec.UseNumber()
	v, err := r.value("", 0)
	if err != nil {
		return nil, err
	}
	if _, err := r.dec.Token(); err != io.EOF {
		return nil, refuse("manifest", "more after the object", "one JSON object")
	}
	return v, nil
}

type reader struct {
	dec  *json.Decoder
	data []byte
}

func (r *reader) value(path string, depth int) (*value, error) {
	if depth > maxDepth {
		return nil, refuse(path, fmt.Sprintf("%d levels", depth), fmt.Sprintf("up to %d levels of objects and lists", maxDepth))
	}
	tok, err := r.dec.Token()
	if err != nil {
		return nil, syntax(path, err)
	}
	end := r.dec.InputOffset()
	switch t := tok.(type) {
	case json.Delim:
		v := &value{kind: byte(t)}
		if err := r.fill(v, path, depth); err != nil {
			return nil, err
		}
		v.raw = r.data[end-1 : r.dec.InputOffset()]
		return v, nil
	case string:
		return &value{kind: '"', text: t}, nil
	case json.Number:
		return &value{kind: '0', text: t.String()}, nil
	case bool:
		return &value{kind: 'b', text: strconv.FormatBool(t), truth: t, raw: []byte(strconv.FormatBool(t))}, nil
	default:
		return &value{kind: 'n', text: "null"}, nil
	}
}

// fill reads what is inside an object or list, and its closing delimiter.
func (r *reader) fill(v *value, path string, depth int) error {
	seen := map[string]bool{}
	for n := 0; r.dec.More(); n++ {
		if v.kind == '[' {
			item, err := r.value(path+"["+strconv.Itoa(n)+"]", depth+1)
			if err != nil {
				return err
			}
			v.items = append(v.items, item)
			continue
		}
		tok, err := r.dec.Token()
		if err != nil {
			return syntax(path, err)
		}
		key, ok := tok.(string)
		if !ok {
			return refuse(path, fmt.Sprint(tok), "a field name in quotes")
		}
		if seen[key] {
			return refuse(join(path, key), "given twice", "each field once")
		}
		seen[key] = true
		val, err := r.value(join(path, key), depth+1)
		if err != nil {
			return err
		}
		v.members = append(v.members, member{key, val})
	}
	if _, err := r.dec.Token(); err != nil {
		return syntax(path, err)
	}
	return nil
}

func (v *value) member(key string) *value {
	for _, m := range v.members {
		if m.key == key {
			return m.val
		}
	}
	return nil
}

// checkStrings holds every string and key below v to maxString printable
// characters.
func (v *value) checkStrings(path string) error {
	if v.kind == '"' && !printable(v.text) {
		return refuse(path, v.text, fmt.Sprintf("up to %d printable characters", maxString))
	}
	for _, m := range v.members {
		if !printable(m.key) {
			return refuse(join(path, m.key), m.key, fmt.Sprintf("field names of up to %d printable characters", maxString))
		}
		if err := m.val.checkStrings(join(path, m.key)); err != nil {
			return err
		}
	}
	for i, item := range v.items {
		if err := item.checkStrings(path + "[" + strconv.Itoa(i) + "]"); err != nil {
			return err
		}
	}
	return nil
}

// nodes counts v and every value below it.
func (v *value) nodes() int {
	n := 1
	for _, m := range v.members {
		n += m.val.nodes()
	}
	for _, item := range v.items {
		n += item.nodes()
	}
	return n
}

// show is the value as an error repeats it.
func (v *value) show() string {
	switch v.kind {
	case '{':
		return "an object"
	case '[':
		return "a list"
	default:
		return v.text
	}
}

func printable(s string) bool {
	if utf8.RuneCountInString(s) > maxString {
		return false
	}
	for _, r := range s {
		if !unicode.IsPrint(r) {
			return false
		}
	}
	return true
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

func syntax(path string, err error) error {
	if path == "" {
		path = "manifest"
	}
	return &ManifestError{Field: path, Value: err.Error(), Allowed: "valid JSON"}
}
