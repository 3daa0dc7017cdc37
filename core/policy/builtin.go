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

// The built-in whole policies, which decide in the place of a pipeline.
const (
	BoundedLoadPolicy = BuiltinPrefix + "consistent-hash-bounded-load"
	StickyPolicy      = BuiltinPrefix + "sticky"
	TwoTierPolicy     = BuiltinPrefix + "two-tier"
)

// Builtins lists the built-in scorers in order.
func Builtins() []string {
	return []string{
		BuiltinPrefix + "backlog-tokens", DefaultScorer, BuiltinPrefix + "least-load", BuiltinPrefix + "lmetric",
		BuiltinPrefix + "round-robin", BuiltinPrefix + "weighted-sum",
	}
}

// BuiltinPickers lists the built-in pickers in order.
func BuiltinPickers() []string {
	return []string{BestPicker, SoftmaxPicker, TwoChoicesPicker}
}

// BuiltinPolicies lists the built-in whole policies in order.
func BuiltinPolicies() []string {
	return []string{BoundedLoadPolicy, StickyPolicy, TwoTierPolicy}
}

// Builtin makes the built-in scorer named by use with its configuration; nil
// means all defaults.
func Builtin(use string, config json.RawMessage) (Scorer, error) {
	switch strings.TrimPrefix(use, BuiltinPrefix) {
	case "backlog-tokens":
		return newBacklogTokens(config)
	case "kv-aware":
		return newKVAware(config)
	case "least-load":
		return leastLoad{}, noConfig(use, config)
	case "lmetric":
		return newPrefillTimesBatch(config)
	case "round-robin":
		return roundRobin{}, noConfig(use, config)
	case "weighted-sum":
		return newWeightedSum(config)
	}
	return nil, &fleet.FieldError{Field: "use", Value: use, Allowed: strings.Join(Builtins(), ", ")}
}

// builtinStage makes the built-in stage of a kind; no filter is built in.
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
	case abi.KindPolicy:
		return builtinPolicy(st)
	case abi.KindFilter:
	}
	return nil, &fleet.FieldError{Field: "use", Value: st.Use, Allowed: useModule}
}

func builtinPolicy(st StageSpec) (Whole, error) {
	switch st.Use {
	case BoundedLoadPolicy:
		return newBoundedLoad(st.Config)
	case StickyPolicy:
		return sticky{}, noConfig(st.Use, st.Config)
	case TwoTierPolicy:
		return newTwoTier(st.Config)
	}
	return nil, &fleet.FieldError{Field: "use", Value: st.Use, Allowed: strings.Join(BuiltinPolicies(), ", ") + ", " + useModule}
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
