package policy_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/plugins/abi"
)

// known are the modules of the lint's tests.
func known(use string) (policy.StageFacts, bool) {
	name, _, _ := strings.Cut(use, "@")
	f, ok := map[string]policy.StageFacts{
		"module:unit":     {ScoreRange: &abi.Range{Min: 0, Max: 1}},
		"module:constant": {ScoreRange: &abi.Range{Min: 2, Max: 2}},
		"module:huge":     {ScoreRange: &abi.Range{Min: 1e17, Max: 2e17}},
		"module:below":    {ScoreRange: &abi.Range{Min: -2e17, Max: -1e17}},
		"module:free":     {},
		"module:stateful": {Stateful: true},
		"module:blind":    {Columns: []string{"load.active_requests"}},
		"module:seeing":   {Columns: []string{"load.active_requests", "upstream.score"}},
	}[name]
	return f, ok
}

// spec is a specification from a text, which must be valid.
func spec(t *testing.T, text string) policy.Spec {
	t.Helper()
	s, err := policy.ParseSpec([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestLintTellsWhatIsOfNoEffect(t *testing.T) {
	const weight, open = policy.WarnWeight, policy.WarnOpen
	for name, c := range map[string]struct {
		spec string
		want []string // code and stage
	}{
		"the default":               {`{"scorers":[{"use":"builtin:kv-aware"}]}`, nil},
		"weight 0":                  {`{"scorers":[{"use":"builtin:kv-aware"},{"use":"builtin:least-load","weight":0}]}`, []string{weight + " scorers[1]"}},
		"weight 0 of lora":          {`{"scorers":[{"use":"builtin:kv-aware"}],"lora":[{"use":"module:x","weight":0}]}`, []string{weight + " lora[0]"}},
		"constant score":            {`{"scorers":[{"use":"module:constant"},{"use":"module:unit"}]}`, []string{weight + " scorers[0]"}},
		"size of the only weight":   {`{"scorers":[{"use":"builtin:kv-aware","weight":2}]}`, []string{weight + " scorers[0]"}},
		"sign of the only weight":   {`{"scorers":[{"use":"builtin:kv-aware","weight":-1}]}`, nil},
		"only weight and softmax":   {`{"scorers":[{"use":"builtin:kv-aware","weight":2}],"picker":{"use":"builtin:softmax"}}`, []string{weight + " scorers[0]"}},
		"only weight, a module":     {`{"scorers":[{"use":"builtin:kv-aware","weight":2}],"picker":{"use":"module:seeing"}}`, nil},
		"only weight and lora":      {`{"scorers":[{"use":"builtin:kv-aware","weight":2}],"lora":[{"use":"builtin:lora-affinity"}]}`, nil},
		"one of two has a weight":   {`{"scorers":[{"use":"builtin:kv-aware","weight":2},{"use":"builtin:least-load","weight":0}]}`, []string{weight + " scorers[0]", weight + " scorers[1]"}},
		"two weights":               {`{"scorers":[{"use":"builtin:kv-aware","weight":2},{"use":"builtin:least-load","weight":3}]}`, nil},
		"picker that does not look": {`{"scorers":[{"use":"builtin:kv-aware"},{"use":"builtin:least-load"}],"picker":{"use":"module:blind@sha256:00"}}`, []string{weight + " scorers[0]", weight + " scorers[1]"}},
		"picker that looks":         {`{"scorers":[{"use":"builtin:kv-aware"}],"picker":{"use":"module:seeing"}}`, nil},
		"picker nobody knows":       {`{"scorers":[{"use":"builtin:kv-aware"}],"picker":{"use":"module:other"}}`, nil},
		"absorbed":                  {`{"scorers":[{"use":"module:unit"},{"use":"module:huge"}]}`, []string{weight + " scorers[0]"}},
		"absorbed, rank":            {`{"scorers":[{"use":"module:below"},{"use":"builtin:kv-aware","normalise":"rank","weight":3}]}`, []string{weight + " scorers[1]"}},
		"just absorbed":             {`{"scorers":[{"use":"module:unit","weight":3.9},{"use":"module:huge"}]}`, []string{weight + " scorers[0]"}},
		"perhaps not absorbed":      {`{"scorers":[{"use":"module:unit","weight":4.1},{"use":"module:huge"}]}`, nil},
		"large enough":              {`{"scorers":[{"use":"module:unit","weight":1000},{"use":"module:huge"}]}`, nil},
		"huge, but normalised":      {`{"scorers":[{"use":"module:unit"},{"use":"module:huge","normalise":"minmax"}]}`, nil},
		"unbounded":                 {`{"scorers":[{"use":"module:free"},{"use":"module:huge"}]}`, nil},
		"three terms":               {`{"scorers":[{"use":"module:unit"},{"use":"module:huge"},{"use":"module:free"}]}`, nil},
		"a pair that cancels":       {`{"scorers":[{"use":"builtin:kv-aware","weight":2,"config":{"host_weight":0,"disk_weight":0}},{"use":"builtin:least-load"},{"use":"builtin:kv-aware","weight":-2,"config":{ "disk_weight":0,"host_weight":0}}]}`, []string{weight + " scorers[2]"}},
		"of a known module":         {`{"scorers":[{"use":"module:free","normalise":"rank"},{"use":"module:free","normalise":"rank","weight":-1}]}`, []string{weight + " scorers[1]"}},
		"other configuration":       {`{"scorers":[{"use":"builtin:kv-aware"},{"use":"builtin:kv-aware","weight":-1,"config":{"host_weight":0}}]}`, nil},
		"other normalisation":       {`{"scorers":[{"use":"builtin:kv-aware"},{"use":"builtin:kv-aware","weight":-1,"normalise":"rank"}]}`, nil},
		"of a module with state":    {`{"scorers":[{"use":"module:stateful"},{"use":"module:stateful","weight":-1}]}`, nil},
		"of a module nobody knows":  {`{"scorers":[{"use":"module:other"},{"use":"module:other","weight":-1}]}`, nil},
		"a scorer and a lora one":   {`{"scorers":[{"use":"builtin:kv-aware"}],"lora":[{"use":"builtin:kv-aware","weight":-1}]}`, nil},
		"open filter":               {`{"filters":[{"use":"module:f"}],"scorers":[{"use":"builtin:kv-aware"}]}`, []string{open + " filters[0]", open + " filters[0]", open + " filters[0]"}},
		"filter that ignores":       {`{"filters":[{"use":"module:f","on_error":"fail"}],"scorers":[{"use":"builtin:kv-aware"}]}`, []string{open + " filters[0]", open + " filters[0]"}},
		"filter that skips":         {`{"filters":[{"use":"module:f","on_empty":"fail","on_error":"skip"}],"scorers":[{"use":"builtin:kv-aware"}]}`, []string{open + " filters[0]", open + " filters[0]"}},
		"only a trip opens it":      {`{"filters":[{"use":"module:f","on_empty":"fail","on_error":"fail"}],"scorers":[{"use":"builtin:kv-aware"}]}`, []string{open + " filters[0]"}},
		"each filter":               {`{"filters":[{"use":"module:f","on_empty":"fail","on_error":"fail"},{"use":"module:g","on_empty":"fail","on_error":"fail"}],"scorers":[{"use":"builtin:kv-aware"}]}`, []string{open + " filters[0]", open + " filters[1]"}},
		"a whole policy":            {`{"policy":{"use":"module:free"}}`, nil},
		"no scorer":                 {`{"picker":{"use":"builtin:two-choices"}}`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, w := range policy.Lint(spec(t, c.spec), known) {
				got = append(got, w.Code+" "+w.Stage)
				if len(w.Message) < 20 {
					t.Errorf("message %q says too little", w.Message)
				}
			}
			less := func(a, b string) int { return strings.Compare(a, b) }
			if diff := cmp.Diff(sorted(c.want, less), sorted(got, less)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestLintNeedsNoFacts(t *testing.T) {
	if got := policy.Lint(spec(t, `{"scorers":[{"use":"module:x"},{"use":"module:x","weight":-1}],"picker":{"use":"module:p"}}`), nil); got != nil {
		t.Errorf("got %v", got)
	}
	if got := policy.Lint(policy.Spec{}, nil); got != nil {
		t.Errorf("an invalid specification: got %v", got)
	}
}

// TestLintIsRight: what the lint says is absorbed or cancelled changes no bit of
// the totals.
func TestLintIsRight(t *testing.T) {
	for name, text := range map[string]string{
		"absorbed":       `{"scorers":[{"use":"module:unit"},{"use":"module:huge"}]}`,
		"just absorbed":  `{"scorers":[{"use":"module:unit","weight":3.9},{"use":"module:huge"}]}`,
		"absorbed after": `{"scorers":[{"use":"module:huge"},{"use":"module:unit"}]}`,
	} {
		s := spec(t, text)
		src := modules{"module:unit": scores(1, 0, 0.5, 1), "module:huge": scores(1e17, 2e17, 1.1529215046068470e18/8, 1.5e17)}
		if len(policy.Lint(s, known)) != 1 {
			t.Fatalf("%s: the lint is silent", name)
		}
		d := decided(t, revision(t, s, src), 4)
		if diff := cmp.Diff([]float64{1e17, 2e17, 1.1529215046068470e18 / 8, 1.5e17}, d.Totals); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func sorted(in []string, less func(a, b string) int) []string {
	out := append([]string{}, in...)
	for i := range out {
		for j := i; j > 0 && less(out[j], out[j-1]) < 0; j-- {
			out[j], out[j-1] = out[j-1], out[j]
		}
	}
	return out
}

func TestWarningsAreReadable(t *testing.T) {
	b, err := json.Marshal(policy.Lint(spec(t, `{"scorers":[{"use":"builtin:kv-aware","weight":2}]}`), nil))
	if err != nil {
		t.Fatal(err)
	}
	want := `[{"code":"weight_never_decides","stage":"scorers[0]","message":"there is no other scorer: the weight 2 picks as 1 does"}]`
	if diff := cmp.Diff(want, string(b)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
