package cli_test

import (
	"strings"
	"testing"
)

func TestUseTakesAWholePolicyThatIsBuiltIn(t *testing.T) {
	r := start(t)
	has(t, r.run(t, `policy apply default --use builtin:two-tier --config %q --activate`, `{"cache_threshold":0.2}`), "policy default revision 2 active, previous 1")
	if spec := r.run(t, "policy show default"); !strings.Contains(spec, `"policy":{"use":"builtin:two-tier","config":{"cache_threshold":0.2}`) {
		t.Errorf("got\n%s", spec)
	}
	for use, want := range map[string]string{
		"--use builtin:softmax": `builtin:softmax is a picker, which goes beside scorers: {"scorers": [{"use": "builtin:kv-aware"}], "picker": {"use": "builtin:softmax"}}`,
		"two-tier":              "there is no file two-tier; the built-in of this name is --use builtin:two-tier",
		"builtin:least-load":    "there is no file builtin:least-load; the built-in of this name is --use builtin:least-load",
		"softmax":               "there is no file softmax; builtin:softmax is a picker, which goes beside scorers",
		"nobody":                "open nobody: no such file or directory",
	} {
		if err := r.fails(t, "policy apply default "+use); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", use, err, want)
		}
	}
}
