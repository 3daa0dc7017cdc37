package policy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
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

// later names the parts of a specification that this version knows but does
// not run.
var later = []string{"filters", "lora", "policy"}

// ParseSpec reads a specification strictly: an unknown or repeated key, a
// stage of a kind that is not supported, or a value out of range is an error
// that names it.
func ParseSpec(b []byte) (Spec, error) {
	var probe map[string]json.RawMessage
	if err := json.Unmarshal(b, &probe); err != nil {
		return Spec{}, &fleet.FieldError{Field: "policy", Value: string(b), Allowed: "a JSON object: " + err.Error()}
	}
	for _, k := range later {
		if v, ok := probe[k]; ok {
			return Spec{}, &fleet.FieldError{Field: k, Value: string(v), Allowed: "nothing: " + k + " stages are not supported by this version"}
		}
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	var s Spec
	if err := dec.Decode(&s); err != nil {
		return Spec{}, &fleet.FieldError{Field: "policy", Value: string(b), Allowed: "scorers[{use, weight, normalise, config, on_error}], picker{use, config}, fallback: " + err.Error()}
	}
	return s.Normalised()
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
	for _, f := range []struct{ field, value, allowed string }{
		{"normalise", sc.Normalise, "none minmax rank"},
		{"on_error", sc.OnError, "fallback skip fail"},
	} {
		if !contains(f.allowed, f.value) {
			return &fleet.FieldError{Field: field + "." + f.field, Value: f.value, Allowed: strings.ReplaceAll(f.allowed, " ", ", ")}
		}
	}
	kind, name, ok := strings.Cut(sc.Use, ":")
	if !ok || name == "" || (kind != "builtin" && kind != "module") {
		return &fleet.FieldError{Field: field + ".use", Value: sc.Use, Allowed: "builtin:NAME, module:NAME or module:NAME@sha256:HEX"}
	}
	return nil
}

func contains(words, w string) bool {
	for _, x := range strings.Fields(words) {
		if x == w {
			return true
		}
	}
	return false
}
