package selection_test

import (
	"context"
	"encoding/json"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/plugins/abi"
)

// faulty is a policy whose scorer fails.
func faulty() policy.Spec {
	return policy.Spec{Scorers: []policy.ScorerSpec{{StageSpec: policy.StageSpec{Use: "module:bad"}}}}
}

// faults gives every module a stage that fails.
type faults struct{}

func (faults) Stage(context.Context, abi.Kind, string, json.RawMessage) (policy.Stage, string, error) {
	return failing{}, "sha256:00", nil
}

// failing is a scorer that always faults.
type failing struct{}

func (failing) Columns() policy.ColumnSet { return policy.ColumnSet{} }

func (failing) Score(context.Context, *policy.Table, []float64, *policy.StageReport) (policy.Verdict, error) {
	return policy.Answered, &policy.Fault{Reason: "trap"}
}

func (failing) CheckOverrides(map[string]json.RawMessage) ([]string, error) { return nil, nil }

func (failing) Close() error { return nil }
