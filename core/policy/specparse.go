package policy

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/routerd/routerd/fleet"
)

// Keys of the parts of a specification, as they are written.
var (
	specKeys   = []string{"filters", "scorers", "lora", "picker", "policy", "fallback"}
	filterKeys = []string{"use", "config", "on_empty", "on_error"}
	scorerKeys = []string{"use", "weight", "normalise", "config", "on_error"}
	pickerKeys = []string{"use", "config", "on_error"}
)

// ParseSpec reads a specification strictly: an unknown, misspelt or repeated
// key, a stage of a kind that is not supported, or a value out of range is an
// error that names it by its path, such as filters[0].on_empty. A null is as if
// the key were not there.
func ParseSpec(b []byte) (Spec, error) {
	top, err := objectOf("policy", b)
	if err != nil {
		return Spec{}, err
	}
	r := specReader{}
	r.keys("policy", top, specKeys)
	var s Spec
	for i, e := range r.list("filters", top["filters"]) {
		s.Filters = append(s.Filters, r.filter(fmt.Sprintf("filters[%d]", i), e))
	}
	for i, e := range r.list("scorers", top["scorers"]) {
		s.Scorers = append(s.Scorers, r.scorer(fmt.Sprintf("scorers[%d]", i), e))
	}
	for i, e := range r.list("lora", top["lora"]) {
		s.Lora = append(s.Lora, r.scorer(fmt.Sprintf("lora[%d]", i), e))
	}
	if raw := top["picker"]; given(raw) {
		stage, o := r.stage("picker", raw, pickerKeys)
		s.Picker = &PickerSpec{StageSpec: stage, OnError: r.text("picker.on_error", o["on_error"])}
	}
	if raw := top["policy"]; given(raw) {
		stage, o := r.stage("policy", raw, pickerKeys)
		s.Policy = &WholeSpec{StageSpec: stage, OnError: r.text("policy.on_error", o["on_error"])}
	}
	s.Fallback = r.text("fallback", top["fallback"])
	if r.err != nil {
		return Spec{}, r.err
	}
	return s.Normalised()
}

// specReader reads the parts of a specification and keeps the first error.
type specReader struct{ err error }

func (r *specReader) refuse(field, value, allowed string) {
	if r.err == nil {
		r.err = &fleet.FieldError{Field: field, Value: value, Allowed: allowed}
	}
}

func given(raw json.RawMessage) bool { return len(raw) > 0 && string(raw) != "null" }

// keys compares keys exactly, where the JSON package would overlook the case of
// letters.
func (r *specReader) keys(field string, object map[string]json.RawMessage, allowed []string) {
	for _, k := range slices.Sorted(maps.Keys(object)) {
		if !slices.Contains(allowed, k) {
			r.refuse(field, k, strings.Join(allowed, ", "))
		}
	}
}

func (r *specReader) list(field string, raw json.RawMessage) (elements []json.RawMessage) {
	if given(raw) && json.Unmarshal(raw, &elements) != nil {
		r.refuse(field, string(raw), "a list of stages")
	}
	return elements
}

func (r *specReader) stage(field string, raw json.RawMessage, allowed []string) (StageSpec, map[string]json.RawMessage) {
	var object map[string]json.RawMessage
	if json.Unmarshal(raw, &object) != nil || object == nil {
		r.refuse(field, string(raw), "an object of "+strings.Join(allowed, ", "))
	}
	r.keys(field, object, allowed)
	return StageSpec{Use: r.text(field+".use", object["use"]), Config: slices.Clone(object["config"])}, object
}

func (r *specReader) filter(field string, raw json.RawMessage) FilterSpec {
	stage, o := r.stage(field, raw, filterKeys)
	return FilterSpec{
		StageSpec: stage,
		OnEmpty:   r.text(field+".on_empty", o["on_empty"]),
		OnError:   r.text(field+".on_error", o["on_error"]),
	}
}

func (r *specReader) scorer(field string, raw json.RawMessage) ScorerSpec {
	stage, o := r.stage(field, raw, scorerKeys)
	sc := ScorerSpec{
		StageSpec: stage,
		Normalise: r.text(field+".normalise", o["normalise"]),
		OnError:   r.text(field+".on_error", o["on_error"]),
	}
	if w := o["weight"]; given(w) {
		sc.Weight = new(float64)
		if json.Unmarshal(w, sc.Weight) != nil {
			r.refuse(field+".weight", string(w), "a number from -1e6 to 1e6")
		}
	}
	return sc
}

func (r *specReader) text(field string, raw json.RawMessage) (s string) {
	if given(raw) && json.Unmarshal(raw, &s) != nil {
		r.refuse(field, string(raw), "a string")
	}
	return s
}
