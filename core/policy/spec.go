package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/plugins/abi"
)

// MaxWeight bounds the absolute weight of a scorer.
const MaxWeight = 1e6

// MaxStages bounds the filters, the scorers and the lora scorers of a policy,
// each by itself.
const MaxStages = 16

// Spec is a policy as its author writes it: an immutable description of the
// pipeline, or of one whole policy in its place. A stage is "builtin:NAME",
// "module:NAME" or "module:NAME@sha256:HEX".
type Spec struct {
	Filters []FilterSpec `json:"filters,omitempty"`
	Scorers []ScorerSpec `json:"scorers,omitempty"`
	// Lora are scorers that run only for requests with an adapter, after the
	// others.
	Lora     []ScorerSpec `json:"lora,omitempty"`
	Picker   *PickerSpec  `json:"picker,omitempty"`
	Policy   *WholeSpec   `json:"policy,omitempty"`
	Fallback string       `json:"fallback,omitempty"`
}

// StageSpec names a stage and its configuration.
type StageSpec struct {
	Use    string          `json:"use"`
	Config json.RawMessage `json:"config,omitempty"`
}

// FilterSpec is a filter of the pipeline. OnEmpty tells what comes of a verdict
// that drops every candidate: ignore or fail. OnError is fallback, skip or fail.
type FilterSpec struct {
	StageSpec
	OnEmpty string `json:"on_empty,omitempty"`
	OnError string `json:"on_error,omitempty"`
}

// ScorerSpec is a scorer of the pipeline. A nil Weight is 1; Normalise is
// none, minmax or rank; OnError is fallback, skip or fail.
type ScorerSpec struct {
	StageSpec
	Weight    *float64 `json:"weight,omitempty"`
	Normalise string   `json:"normalise,omitempty"`
	OnError   string   `json:"on_error,omitempty"`
}

// PickerSpec is the picker of the pipeline. OnError is fallback, skip (the best
// total is picked) or fail.
type PickerSpec struct {
	StageSpec
	OnError string `json:"on_error,omitempty"`
}

// WholeSpec is a policy in one module. OnError is fallback or fail: there is
// nothing to go on with when it is skipped.
type WholeSpec struct {
	StageSpec
	OnError string `json:"on_error,omitempty"`
}

// What a stage's on_error and a filter's on_empty may say.
const (
	onErrorFallback = "fallback"
	onErrorSkip     = "skip"
	onErrorFail     = "fail"
	onEmptyIgnore   = "ignore"
	onEmptyFail     = "fail"
)

var (
	onErrors    = []string{onErrorFallback, onErrorSkip, onErrorFail}
	onEmpties   = []string{onEmptyIgnore, onEmptyFail}
	normalisers = []string{normaliseNone, normaliseMinMax, normaliseRank}
)

const (
	useAny    = "builtin:NAME, module:NAME or module:NAME@sha256:HEX"
	useModule = "module:NAME or module:NAME@sha256:HEX"
)

// Normalised is a copy of s that shares nothing with it, with the defaults
// filled, so that two spellings of one policy compare equal. What is out of
// range is refused with a *fleet.FieldError: built-in stages are checked with
// their configuration, modules only by the form of their name.
func (s Spec) Normalised() (Spec, error) {
	out := s.Clone()
	if out.Fallback == "" {
		out.Fallback = DefaultScorer
	}
	if !slices.Contains(Builtins(), out.Fallback) {
		return s, &fleet.FieldError{Field: "fallback", Value: out.Fallback, Allowed: "a built-in scorer: " + strings.Join(Builtins(), ", ")}
	}
	check := out.normalisePipeline
	if out.Policy != nil {
		check = out.normaliseWhole
	}
	if err := check(); err != nil {
		return s, err
	}
	return out, nil
}

// normaliseWhole is for a specification with a whole policy.
func (s *Spec) normaliseWhole() error {
	for _, other := range []struct {
		field string
		given bool
	}{
		{"filters", len(s.Filters) > 0},
		{"scorers", len(s.Scorers) > 0},
		{"lora", len(s.Lora) > 0},
		{"picker", s.Picker != nil},
	} {
		if other.given {
			return &fleet.FieldError{Field: other.field, Value: other.field, Allowed: "policy and fallback alone, or filters, scorers, lora, picker and fallback"}
		}
	}
	if s.Policy.OnError == "" {
		s.Policy.OnError = onErrorFallback
	}
	if err := oneOf("policy.on_error", s.Policy.OnError, onErrorFallback, onErrorFail); err != nil {
		return err
	}
	return s.Policy.normalise("policy", abi.KindPolicy)
}

// normalisePipeline is for a specification without one.
func (s *Spec) normalisePipeline() error {
	if s.Picker == nil {
		s.Picker = &PickerSpec{StageSpec: StageSpec{Use: BestPicker}}
	}
	for _, list := range []struct {
		field      string
		least, len int
	}{
		{"filters", 0, len(s.Filters)},
		{"scorers", s.leastScorers(), len(s.Scorers)},
		{"lora", 0, len(s.Lora)},
	} {
		if list.len < list.least || list.len > MaxStages {
			value := strconv.Itoa(list.len)
			if list.len == 0 {
				value = "[]"
			}
			return &fleet.FieldError{Field: list.field, Value: value, Allowed: fmt.Sprintf("%d to %d %s", list.least, MaxStages, list.field)}
		}
	}
	for i := range s.Filters {
		if err := s.Filters[i].normalise(fmt.Sprintf("filters[%d]", i)); err != nil {
			return err
		}
	}
	for i := range s.Scorers {
		if err := s.Scorers[i].normalise(fmt.Sprintf("scorers[%d]", i), abi.KindScorer); err != nil {
			return err
		}
	}
	for i := range s.Lora {
		if err := s.Lora[i].normalise(fmt.Sprintf("lora[%d]", i), abi.KindLoraScorer); err != nil {
			return err
		}
	}
	return s.Picker.normalise()
}

// leastScorers is 1 where the picker takes the best total: without a scorer all
// would be equal.
func (s *Spec) leastScorers() int {
	if s.Picker.Use == BestPicker {
		return 1
	}
	return 0
}

func (f *FilterSpec) normalise(field string) error {
	if f.OnEmpty == "" {
		f.OnEmpty = onEmptyIgnore
	}
	if f.OnError == "" {
		f.OnError = onErrorFallback
	}
	if err := oneOf(field+".on_empty", f.OnEmpty, onEmpties...); err != nil {
		return err
	}
	if err := oneOf(field+".on_error", f.OnError, onErrors...); err != nil {
		return err
	}
	return f.StageSpec.normalise(field, abi.KindFilter)
}

func (sc *ScorerSpec) normalise(field string, kind abi.Kind) error {
	if sc.Weight == nil {
		one := 1.0
		sc.Weight = &one
	}
	if w := *sc.Weight; math.IsNaN(w) || math.Abs(w) > MaxWeight {
		return &fleet.FieldError{Field: field + ".weight", Value: strconv.FormatFloat(w, 'g', -1, 64), Allowed: "-1e6 to 1e6"}
	}
	if sc.Normalise == "" {
		sc.Normalise = normaliseNone
	}
	if sc.OnError == "" {
		sc.OnError = onErrorFallback
	}
	if err := oneOf(field+".normalise", sc.Normalise, normalisers...); err != nil {
		return err
	}
	if err := oneOf(field+".on_error", sc.OnError, onErrors...); err != nil {
		return err
	}
	return sc.StageSpec.normalise(field, kind)
}

func (p *PickerSpec) normalise() error {
	if p.OnError == "" {
		p.OnError = onErrorFallback
	}
	if err := oneOf("picker.on_error", p.OnError, onErrors...); err != nil {
		return err
	}
	return p.StageSpec.normalise("picker", abi.KindPicker)
}

// normalise checks the name of a stage and, where it is built in, its
// configuration.
func (st *StageSpec) normalise(field string, kind abi.Kind) error {
	if string(st.Config) == "null" {
		st.Config = nil
	}
	where, name, ok := strings.Cut(st.Use, ":")
	if ok && name != "" && where == "builtin" && kind != abi.KindFilter {
		_, err := builtinStage(kind, *st)
		return within(field, placed(st.Use, err))
	}
	if ok && name != "" && where == "module" {
		return nil
	}
	allowed := useAny
	if kind == abi.KindFilter {
		allowed = useModule
	}
	return placed(st.Use, &fleet.FieldError{Field: field + ".use", Value: st.Use, Allowed: allowed})
}

// within puts the place of a stage before the field that it refuses.
func within(field string, err error) error {
	f, ok := errors.AsType[*fleet.FieldError](err)
	if !ok {
		return err
	}
	inner := f.Field
	if inner != "use" && !strings.HasPrefix(inner, "config") {
		inner = "config." + inner
	}
	return &fleet.FieldError{Field: field + "." + inner, Value: f.Value, Allowed: f.Allowed}
}

func oneOf(field, value string, allowed ...string) error {
	if slices.Contains(allowed, value) {
		return nil
	}
	return &fleet.FieldError{Field: field, Value: value, Allowed: strings.Join(allowed, ", ")}
}
