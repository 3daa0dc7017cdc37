package policy

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/plugins/abi"
)

// BuiltinPrefix starts the name of a stage that is part of the router.
const BuiltinPrefix = "builtin:"

// DefaultScorer is the scorer of the policy "default" and every
// specification's fallback unless it names another.
const DefaultScorer = BuiltinPrefix + "kv-aware"

// LoraAffinity is the lora scorer for the built-in order of candidates by where
// the adapter is.
const LoraAffinity = BuiltinPrefix + "lora-affinity"

// The built-in pickers: the highest total; a draw by chance that prefers high
// totals; the better of two drawn rows.
const (
	BestPicker       = BuiltinPrefix + "best"
	SoftmaxPicker    = BuiltinPrefix + "softmax"
	TwoChoicesPicker = BuiltinPrefix + "two-choices"
)

// Builtins lists the built-in scorers in order.
func Builtins() []string {
	return []string{DefaultScorer, BuiltinPrefix + "least-load", BuiltinPrefix + "round-robin"}
}

// BuiltinPickers lists the built-in pickers in order.
func BuiltinPickers() []string {
	return []string{BestPicker, SoftmaxPicker, TwoChoicesPicker}
}

// Builtin makes the built-in scorer named by use with its configuration; nil
// means all defaults.
func Builtin(use string, config json.RawMessage) (Scorer, error) {
	switch strings.TrimPrefix(use, BuiltinPrefix) {
	case "kv-aware":
		return newKVAware(config)
	case "least-load":
		if err := noConfig(use, config); err != nil {
			return nil, err
		}
		return leastLoad{}, nil
	case "round-robin":
		if err := noConfig(use, config); err != nil {
			return nil, err
		}
		return roundRobin{}, nil
	}
	return nil, &fleet.FieldError{Field: "use", Value: use, Allowed: strings.Join(Builtins(), ", ")}
}

// builtinStage makes the built-in stage of a kind; filters and whole policies
// are none.
func builtinStage(kind abi.Kind, st StageSpec) (Stage, error) {
	switch kind {
	case abi.KindScorer:
		return Builtin(st.Use, st.Config)
	case abi.KindLoraScorer:
		if st.Use == LoraAffinity {
			return loraAffinity{}, noConfig(st.Use, st.Config)
		}
		if !slices.Contains(Builtins(), st.Use) {
			return nil, &fleet.FieldError{Field: "use", Value: st.Use, Allowed: strings.Join(append(Builtins(), LoraAffinity), ", ")}
		}
		return Builtin(st.Use, st.Config)
	case abi.KindPicker:
		return builtinPicker(st)
	case abi.KindFilter, abi.KindPolicy:
	}
	return nil, &fleet.FieldError{Field: "use", Value: st.Use, Allowed: useModule}
}

func builtinPicker(st StageSpec) (Picker, error) {
	switch st.Use {
	case BestPicker:
		return bestTotal{}, noConfig(st.Use, st.Config)
	case SoftmaxPicker:
		return newSoftmax(st.Config)
	case TwoChoicesPicker:
		return twoChoices{}, noConfig(st.Use, st.Config)
	}
	return nil, &fleet.FieldError{Field: "use", Value: st.Use, Allowed: strings.Join(BuiltinPickers(), ", ") + ", " + useModule}
}

func noConfig(use string, config json.RawMessage) error {
	if len(config) == 0 {
		return nil
	}
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(config, &keys); err == nil && len(keys) == 0 {
		return nil
	}
	return &fleet.FieldError{Field: "config", Value: string(config), Allowed: "nothing: " + use + " has no configuration"}
}
