package policy

import (
	"encoding/json"
	"strings"

	"github.com/routerd/routerd/fleet"
)

// BuiltinPrefix starts the name of a stage that is part of the router.
const BuiltinPrefix = "builtin:"

// DefaultScorer is the scorer of the policy "default" and every
// specification's fallback unless it names another.
const DefaultScorer = BuiltinPrefix + "kv-aware"

// BestPicker is the picker that takes the highest total.
const BestPicker = BuiltinPrefix + "best"

// Builtins lists the built-in scorers in order.
func Builtins() []string {
	return []string{DefaultScorer, BuiltinPrefix + "least-load", BuiltinPrefix + "round-robin"}
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
