package policy

import (
	"errors"
	"slices"
	"strings"

	"github.com/routerd/routerd/fleet"
)

// placed adds to the refusal of a stage's use that a built-in of that name belongs
// elsewhere in a specification, and how that is written.
func placed(use string, err error) error {
	f, ok := errors.AsType[*fleet.FieldError](err)
	if !ok || !strings.HasSuffix(f.Field, "use") || f.Value != use {
		return err
	}
	full := BuiltinPrefix + strings.TrimPrefix(use, BuiltinPrefix)
	place := Place(full)
	if place == "" {
		return err
	}
	return &fleet.FieldError{Field: f.Field, Value: f.Value, Allowed: f.Allowed + "; " + full + " is " + place}
}

// Place says what kind of stage a built-in is and how a specification has it; empty
// where there is none of that name.
func Place(use string) string {
	quoted := `{"use": "` + use + `"}`
	switch {
	case slices.Contains(BuiltinPolicies(), use):
		return `a whole policy, which stands alone: {"policy": ` + quoted + `}`
	case slices.Contains(BuiltinPickers(), use):
		return `a picker, which goes beside scorers: {"scorers": [{"use": "` + DefaultScorer + `"}], "picker": ` + quoted + `}`
	case use == LoraAffinity:
		return `a lora scorer, which goes beside scorers: {"scorers": [{"use": "` + DefaultScorer + `"}], "lora": [` + quoted + `]}`
	case slices.Contains(Builtins(), use):
		return `a scorer: {"scorers": [` + quoted + `]}`
	}
	return ""
}
