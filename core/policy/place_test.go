package policy_test

import (
	"strings"
	"testing"

	"github.com/routerd/routerd/core/policy"
)

func TestABuiltInInTheWrongPlaceIsToldWhereItBelongs(t *testing.T) {
	for _, c := range []struct{ spec, want string }{
		{`{"scorers":[{"use":"builtin:sticky"}]}`, `scorers[0].use: "builtin:sticky" is not allowed; allowed: builtin:backlog-tokens, `},
		{`{"scorers":[{"use":"builtin:sticky"}]}`, `; builtin:sticky is a whole policy, which stands alone: {"policy": {"use": "builtin:sticky"}}`},
		{`{"scorers":[{"use":"builtin:softmax"}]}`, `; builtin:softmax is a picker, which goes beside scorers: {"scorers": [{"use": "builtin:kv-aware"}], "picker": {"use": "builtin:softmax"}}`},
		{`{"scorers":[{"use":"builtin:lora-affinity"}]}`, `; builtin:lora-affinity is a lora scorer, which goes beside scorers: {`},
		{`{"policy":{"use":"builtin:kv-aware"}}`, `; builtin:kv-aware is a scorer: {"scorers": [{"use": "builtin:kv-aware"}]}`},
		{`{"filters":[{"use":"builtin:kv-aware"}],"scorers":[{"use":"builtin:kv-aware"}]}`, `filters[0].use: "builtin:kv-aware" is not allowed; allowed: module:NAME or module:NAME@sha256:HEX; builtin:kv-aware is a scorer`},
		{`{"policy":{"use":"two-tier"}}`, `; builtin:two-tier is a whole policy`},
	} {
		_, err := policy.ParseSpec([]byte(c.spec))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %s", c.spec, err, c.want)
		}
	}
	// What the words say is right.
	for _, use := range append(append(append(policy.Builtins(), policy.BuiltinPickers()...), policy.BuiltinPolicies()...), policy.LoraAffinity) {
		_, spec, ok := strings.Cut(policy.Place(use), ": ")
		if _, err := policy.ParseSpec([]byte(spec)); !ok || err != nil {
			t.Errorf("%s is placed as %s: %v", use, spec, err)
		}
	}
	if _, err := policy.ParseSpec([]byte(`{"scorers":[{"use":"builtin:nobody"}]}`)); err == nil || strings.Contains(err.Error(), " is a ") {
		t.Errorf("of a name that is nobody's it says %v", err)
	}
}
