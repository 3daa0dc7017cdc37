package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/routerd/routerd/fleet"
)

// MaxWeight bounds the absolute weight of a scorer.
const MaxWeight = 1e6

// Spec is a policy as its author writes it: an immutable description of the
// pipeline. A stage is "builtin:NAME", "module:NAME" or
// "module:NAME@sha256:HEX".
type Spec struct {
	Scorers  []ScorerSpec `json:"scorers,omitempty"`
	Picker   *StageSpec   `json:"picker,omitempty"`
	Fallback string       `json:"fallback,omitempty"`
}

// StageSpec names a stage and its configuration.
type StageSpec struct {
	Use    string          `json:"use"`
	Config json.RawMessage `json:"config,omitempty"`
}

// ScorerSpec is a scorer of the pipeline. A nil Weight is 1; Normalise is
// none, minmax or rank; OnError is fallback, skip or fail.
type ScorerSpec struct {
	StageSpec
	Weight    *float64 `json:"weight,omitempty"`
	Normalise string   `json:"normalise,omitempty"`
	OnError   string   `json:"on_error,omitempty"`
}

// ParseSpec reads a specification strictly: an unknown, misspelt or repeated
// key, a stage of a kind that is not supported, or a value out of range is an
// error that names it.
func ParseSpec(b []byte) (Spec, error) {
	top, err := objectOf("policy", b)
	if err != nil {
		return Spec{}, err
	}
	if err := checkSpecKeys(top); err != nil {
		return Spec{}, err
	}
	var s Spec
	if err := json.Unmarshal(b, &s); err != nil {
		field, value := "policy", string(b)
		if t, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			field, value = t.Field, t.Value
		}
		return Spec{}, &fleet.FieldError{Field: field, Value: value, Allowed: "scorers[{use, weight, normalise, config, on_error}], picker{use, config}, fallback"}
	}
	return s.Normalised()
}

// checkSpecKeys compares keys exactly, where the JSON package would overlook
// the case of letters.
func checkSpecKeys(top map[string]json.RawMessage) error {
	for _, k := range []string{"filters", "lora", "policy"} {
		if v, ok := top[k]; ok {
			return &fleet.FieldError{Field: k, Value: string(v), Allowed: "nothing: " + k + " stages are not supported by this version"}
		}
	}
	if err := onlyKeys("policy", top, "scorers", "picker", "fallback"); err != nil {
		return err
	}
	var picker map[string]json.RawMessage
	if json.Unmarshal(top["picker"], &picker) == nil {
		if err := onlyKeys("picker", picker, "use", "config"); err != nil {
			return err
		}
	}
	var scorers []map[string]json.RawMessage
	if json.Unmarshal(top["scorers"], &scorers) != nil {
		return nil // its type is refused later, by name
	}
	for i, sc := range scorers {
		if err := onlyKeys(fmt.Sprintf("scorers[%d]", i), sc, "use", "weight", "normalise", "config", "on_error"); err != nil {
			return err
		}
	}
	return nil
}

func onlyKeys(field string, object map[string]json.RawMessage, allowed ...string) error {
	for _, k := range slices.Sorted(maps.Keys(object)) {
		if !slices.Contains(allowed, k) {
			return &fleet.FieldError{Field: field, Value: k, Allowed: strings.Join(allowed, ", ")}
		}
	}
	return nil
}

// Normalised fills the defaults, so that two spellings of one policy compare
// equal, and refuses what is out of range.
func (s Spec) Normalised() (Spec, error) {
	if len(s.Scorers) == 0 {
		return s, &fleet.FieldError{Field: "scorers", Value: "[]", Allowed: "1 to 16 scorers"}
	}
	if len(s.Scorers) > 16 {
		return s, &fleet.FieldError{Field: "scorers", Value: strconv.Itoa(len(s.Scorers)), Allowed: "1 to 16 scorers"}
	}
	out := Spec{Picker: s.Picker, Fallback: s.Fallback}
	for i, sc := range s.Scorers {
		if err := sc.normalise(fmt.Sprintf("scorers[%d]", i)); err != nil {
			return s, err
		}
		out.Scorers = append(out.Scorers, sc)
	}
	if out.Picker == nil {
		out.Picker = &StageSpec{Use: "builtin:best"}
	}
	if out.Picker.Use != "builtin:best" {
		return s, &fleet.FieldError{Field: "picker.use", Value: out.Picker.Use, Allowed: "builtin:best"}
	}
	if len(out.Picker.Config) > 0 {
		return s, &fleet.FieldError{Field: "picker.config", Value: string(out.Picker.Config), Allowed: "nothing: builtin:best has no configuration"}
	}
	if out.Fallback == "" {
		out.Fallback = "builtin:kv-aware"
	}
	if !strings.HasPrefix(out.Fallback, "builtin:") {
		return s, &fleet.FieldError{Field: "fallback", Value: out.Fallback, Allowed: "a builtin: scorer"}
	}
	return out, nil
}

func (sc *ScorerSpec) normalise(field string) error {
	if sc.Weight == nil {
		one := 1.0
		sc.Weight = &one
	}
	if w := *sc.Weight; math.IsNaN(w) || math.Abs(w) > MaxWeight {
		return &fleet.FieldError{Field: field + ".weight", Value: strconv.FormatFloat(w, 'g', -1, 64), Allowed: "-1e6 to 1e6"}
	}
	if sc.Normalise == "" {
		sc.Normalise = "none"
	}
	if sc.OnError == "" {
		sc.OnError = "fallback"
	}
	for _, f := range []struct {
		field, value string
		allowed      []string
	}{
		{"normalise", sc.Normalise, []string{"none", "minmax", "rank"}},
		{"on_error", sc.OnError, []string{"fallback", "skip", "fail"}},
	} {
		if !slices.Contains(f.allowed, f.value) {
			return &fleet.FieldError{Field: field + "." + f.field, Value: f.value, Allowed: strings.Join(f.allowed, ", ")}
		}
	}
	kind, name, ok := strings.Cut(sc.Use, ":")
	if !ok || name == "" || (kind != "builtin" && kind != "module") {
		return &fleet.FieldError{Field: field + ".use", Value: sc.Use, Allowed: "builtin:NAME, module:NAME or module:NAME@sha256:HEX"}
	}
	return nil
}
