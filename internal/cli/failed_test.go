package cli_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/fleet"
	. "github.com/routerd/routerd/host/wasmtest"
	"github.com/routerd/routerd/plugins/abi"
)

// onTwoRows is code that runs for decisions over two rows: the self-test, which
// has others, does not see it.
func onTwoRows(then ...Code) Code {
	return Cat(Get(0), Load32(abi.OffRows), I32(2), Op(I32Eq), If(then...))
}

func TestADecisionThatFailedTheRequestIsExplained(t *testing.T) {
	r := start(t)
	r.run(t, "worker add http://127.0.0.1:8000 --name w1 --id 1 --model m")
	r.run(t, "worker add http://127.0.0.1:8001 --name w2 --id 2 --model m")
	r.run(t, "module put none %q", r.file(t, "none.wasm", Guest{Name: "none", Kinds: []string{"filter"}, Filter: Cat(onTwoRows(SetMask(0, 0), SetMask(1, 0)), I32(0))}.Bytes()))
	r.run(t, "module put traps %q", r.file(t, "traps.wasm", Guest{Name: "traps", ScoreTypes: ColumnTypes, Score: Cat(onTwoRows(Op(Unreachable)), Column(0, Op(F64Neg)))}.Bytes()))
	for spec, want := range map[string][]string{
		`{"filters":[{"use":"module:none","on_empty":"fail"}],"scorers":[{"use":"builtin:least-load"}]}`: {
			"picked nobody: its filters leave nothing; stage module:none faulted: emptied", "DROPPED BY", "module:none",
		},
		`{"scorers":[{"use":"module:traps","on_error":"fail"}]}`: {
			"picked nobody: it fails the request; stage module:traps faulted: E_TRAP unreachable", "TOTAL",
		},
	} {
		r.run(t, "policy apply default %q --activate", r.file(t, "spec.json", []byte(spec)))
		_, err := r.core.Select(t.Context(), &core.Request{
			Kind: core.Book, SelectionID: "s", RequestID: "failed", Surface: "test", Partition: fleet.PartitionKey{Model: "m", Group: "default"},
		})
		e, ok := errors.AsType[*core.Error](err)
		if !ok || e.DecisionID == "" {
			t.Fatalf("got %v; want an error with a decision's id", err)
		}
		out := r.run(t, "decisions %q --policy default@1", e.DecisionID)
		for _, text := range append(want, "w1/0", "w2/0", "policy default@1 would pick w") {
			if !strings.Contains(out, text) {
				t.Errorf("%q is missing\n%s", text, out)
			}
		}
		contains(t, r.run(t, "decisions --limit 1"), "nobody")
	}
}
