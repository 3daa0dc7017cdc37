package app

import (
	"errors"
	"strings"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/fleet"
)

// hintAtBuiltins adds to the refusal of a policy's name that it is that of a
// built-in stage, and how a policy is made of one.
func hintAtBuiltins(err error) error {
	fe, ok := errors.AsType[*fleet.FieldError](err)
	if !ok || fe.Field != "routing.default" && !strings.HasSuffix(fe.Field, ".policy") {
		return err
	}
	name := strings.TrimPrefix(fe.Value, policy.BuiltinPrefix)
	_, spec, ok := strings.Cut(policy.Place(policy.BuiltinPrefix+name), ": ")
	if !ok {
		return err
	}
	return &fleet.FieldError{
		Field: fe.Field, Value: fe.Value,
		Allowed: fe.Allowed + "; to use the built-in of this name, make a policy of it: policies: {" + name + ": " + spec + "}",
	}
}
