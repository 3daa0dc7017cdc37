package policy_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/plugins/abi"
)

func TestParseSpecFillsDefaults(t *testing.T) {
	got, err := policy.ParseSpec([]byte(`{"scorers":[{"use":"builtin:kv-aware"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"scorers":[{"use":"builtin:kv-aware","weight":1,"normalise":"none","on_error":"fallback"}],` +
		`"picker":{"use":"builtin:best","on_error":"fallback"},"fallback":"builtin:kv-aware"}`
	if diff := cmp.Diff(want, string(text)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	again, err := policy.ParseSpec(text)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(got, again); diff != "" {
		t.Errorf("two spellings differ (-first +second):\n%s", diff)
	}
}

func TestParseSpecRefusesByName(t *testing.T) {
	scorer := `{"use":"builtin:kv-aware"}`
	many := strings.TrimSuffix(strings.Repeat(scorer+",", 17), ",")
	for name, c := range map[string]struct{ spec, field string }{
		"unknown key":             {`{"scorers":[` + scorer + `],"scorer":1}`, "policy"},
		"key in another case":     {`{"Scorers":[` + scorer + `]}`, "policy"},
		"repeated key":            {`{"scorers":[` + scorer + `],"scorers":[]}`, "policy.scorers"},
		"repeated key in config":  {`{"scorers":[{"use":"builtin:kv-aware","config":{"a":1,"a":2}}]}`, "policy.scorers[0].config.a"},
		"unknown scorer key":      {`{"scorers":[{"use":"builtin:kv-aware","wieght":1}]}`, "scorers[0]"},
		"unknown picker key":      {`{"scorers":[` + scorer + `],"picker":{"uses":"x"}}`, "picker"},
		"wrong type":              {`{"scorers":[{"use":"builtin:kv-aware","weight":"1"}]}`, "scorers[0].weight"},
		"no list":                 {`{"scorers":{}}`, "scorers"},
		"no stage":                {`{"scorers":[` + scorer + `,3]}`, "scorers[1]"},
		"no text":                 {`{"scorers":[{"use":7}]}`, "scorers[0].use"},
		"no number":               {`{"scorers":[{"use":"builtin:kv-aware","weight":NaN}]}`, ""},
		"infinite weight":         {`{"scorers":[{"use":"builtin:kv-aware","weight":1e999}]}`, "scorers[0].weight"},
		"repeated weight":         {`{"scorers":[{"use":"builtin:kv-aware","weight":1,"weight":2}]}`, "policy.scorers[0].weight"},
		"no scorers":              {`{}`, "scorers"},
		"many scorers":            {`{"scorers":[` + many + `]}`, "scorers"},
		"weight":                  {`{"scorers":[{"use":"builtin:kv-aware","weight":1e7}]}`, "scorers[0].weight"},
		"normalise":               {`{"scorers":[{"use":"builtin:kv-aware","normalise":"zscore"}]}`, "scorers[0].normalise"},
		"on_error":                {`{"scorers":[{"use":"builtin:kv-aware","on_error":"panic"}]}`, "scorers[0].on_error"},
		"use":                     {`{"scorers":[{"use":"kv-aware"}]}`, "scorers[0].use"},
		"preset":                  {`{"scorers":[{"use":"preset:kv-aware"}]}`, "scorers[0].use"},
		"built-in filter":         {`{"filters":[{"use":"builtin:x"}],"scorers":[` + scorer + `]}`, "filters[0].use"},
		"unknown filter key":      {`{"filters":[{"use":"module:f","weight":1}],"scorers":[` + scorer + `]}`, "filters[0]"},
		"on_empty":                {`{"filters":[{"use":"module:f"},{"use":"module:f","on_empty":"drop"}],"scorers":[` + scorer + `]}`, "filters[1].on_empty"},
		"filter's on_error":       {`{"filters":[{"use":"module:f","on_error":"open"}],"scorers":[` + scorer + `]}`, "filters[0].on_error"},
		"lora normalise":          {`{"lora":[{"use":"module:l","normalise":"x"}],"scorers":[` + scorer + `]}`, "lora[0].normalise"},
		"lora affinity elsewhere": {`{"scorers":[{"use":"builtin:lora-affinity"}]}`, "scorers[0].use"},
		"lora best":               {`{"lora":[{"use":"builtin:best"}],"scorers":[` + scorer + `]}`, "lora[0].use"},
		"many lora":               {`{"scorers":[` + scorer + `],"lora":[` + many + `]}`, "lora"},
		"policy with scorers":     {`{"policy":{"use":"module:x"},"scorers":[` + scorer + `]}`, "scorers"},
		"policy with a picker":    {`{"policy":{"use":"module:x"},"picker":{"use":"builtin:best"}}`, "picker"},
		"built-in policy":         {`{"policy":{"use":"builtin:kv-aware"}}`, "policy.use"},
		"skipped policy":          {`{"policy":{"use":"module:x","on_error":"skip"}}`, "policy.on_error"},
		"picker":                  {`{"scorers":[` + scorer + `],"picker":{"use":"builtin:worst"}}`, "picker.use"},
		"picker's on_error":       {`{"scorers":[` + scorer + `],"picker":{"use":"builtin:best","on_error":1}}`, "picker.on_error"},
		"picker config":           {`{"scorers":[` + scorer + `],"picker":{"use":"builtin:best","config":{"t":1}}}`, "picker.config"},
		"softmax config":          {`{"scorers":[` + scorer + `],"picker":{"use":"builtin:softmax","config":{"temp":1}}}`, "picker.config"},
		"temperature":             {`{"scorers":[` + scorer + `],"picker":{"use":"builtin:softmax","config":{"temperature":-1}}}`, "picker.config.temperature"},
		"temperature as text":     {`{"scorers":[` + scorer + `],"picker":{"use":"builtin:softmax","config":{"temperature":"1"}}}`, "picker.config.temperature"},
		"no scorers and best":     {`{"filters":[{"use":"module:f"}],"picker":{"use":"builtin:best"}}`, "scorers"},
		"scorer config":           {`{"scorers":[{"use":"builtin:kv-aware","config":{"host_weight":2}}]}`, "scorers[0].config.host_weight"},
		"fallback":                {`{"scorers":[` + scorer + `],"fallback":"module:x"}`, "fallback"},
		"not an object":           {`[]`, "policy"},
		"two values":              {`{} {}`, "policy"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := policy.ParseSpec([]byte(c.spec))
			if c.field == "" {
				if err == nil {
					t.Error("accepted")
				}
				return
			}
			f, ok := errors.AsType[*fleet.FieldError](err)
			if !ok || f.Field != c.field {
				t.Errorf("got %v; want a refusal of %q", err, c.field)
			}
		})
	}
}

func TestParseSpecTakesEveryKindOfStage(t *testing.T) {
	for given, want := range map[string]string{
		`{"filters":[{"use":"module:f","config":{"a":1},"on_empty":"fail"}],"scorers":[{"use":"builtin:least-load"}],` +
			`"lora":[{"use":"builtin:lora-affinity","weight":2}],"picker":{"use":"builtin:softmax","config":{"temperature":0.5}}}`: `{"filters":[{"use":"module:f","config":{"a":1},"on_empty":"fail","on_error":"fallback"}],` +
			`"scorers":[{"use":"builtin:least-load","weight":1,"normalise":"none","on_error":"fallback"}],` +
			`"lora":[{"use":"builtin:lora-affinity","weight":2,"normalise":"none","on_error":"fallback"}],` +
			`"picker":{"use":"builtin:softmax","config":{"temperature":0.5},"on_error":"fallback"},"fallback":"builtin:kv-aware"}`,
		`{"filters":[{"use":"module:f"}],"picker":{"use":"module:p@sha256:00","on_error":"skip"}}`: `{"filters":[{"use":"module:f","on_empty":"ignore","on_error":"fallback"}],` +
			`"picker":{"use":"module:p@sha256:00","on_error":"skip"},"fallback":"builtin:kv-aware"}`,
		`{"policy":{"use":"module:p","config":null},"fallback":"builtin:least-load","scorers":null}`: `{"policy":{"use":"module:p","on_error":"fallback"},"fallback":"builtin:least-load"}`,
		`{"picker":{"use":"builtin:two-choices","on_error":"fail"}}`:                                 `{"picker":{"use":"builtin:two-choices","on_error":"fail"},"fallback":"builtin:kv-aware"}`,
	} {
		got, err := policy.ParseSpec([]byte(given))
		if err != nil {
			t.Fatalf("%s: %v", given, err)
		}
		text, err := json.Marshal(got)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, string(text)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", given, diff)
		}
	}
}

func TestEachStageOfACloneLeavesTheOriginal(t *testing.T) {
	weight := 2.0
	spec := policy.Spec{
		Filters: []policy.FilterSpec{{StageSpec: policy.StageSpec{Use: "module:f", Config: json.RawMessage(`{}`)}}},
		Scorers: []policy.ScorerSpec{{StageSpec: policy.StageSpec{Use: "module:s"}, Weight: &weight}, {StageSpec: policy.StageSpec{Use: "builtin:kv-aware"}}},
		Lora:    []policy.ScorerSpec{{StageSpec: policy.StageSpec{Use: "module:l"}}},
		Picker:  &policy.PickerSpec{StageSpec: policy.StageSpec{Use: "module:p"}},
		Policy:  &policy.WholeSpec{StageSpec: policy.StageSpec{Use: "module:w"}},
	}
	before, clone := spec.Clone(), spec.Clone()
	var walked []string
	clone.EachStage(func(field string, kind abi.Kind, st *policy.StageSpec) {
		walked = append(walked, field+" "+string(kind)+" "+st.Use)
		st.Use += "@sha256:00"
		if len(st.Config) > 0 {
			st.Config[0] = 'x'
		}
	})
	*clone.Scorers[0].Weight = 3
	want := []string{
		"filters[0] filter module:f", "scorers[0] scorer module:s", "scorers[1] scorer builtin:kv-aware", "lora[0] lora-scorer module:l",
		"picker picker module:p", "policy policy module:w",
	}
	if diff := cmp.Diff(want, walked); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(before, spec); diff != "" {
		t.Errorf("the original was changed (-before +after):\n%s", diff)
	}
	if clone.Filters[0].Use != "module:f@sha256:00" || clone.Policy.Use != "module:w@sha256:00" {
		t.Errorf("the clone was not: %+v", clone)
	}
}

func TestCompileRefuses(t *testing.T) {
	closed := scores(1)
	for name, c := range map[string]struct {
		spec policy.Spec
		want string
	}{
		"module without a source":  {use("module:x"), "scorers[0]"},
		"filter without a source":  {policy.Spec{Filters: []policy.FilterSpec{{StageSpec: policy.StageSpec{Use: "module:f"}}}, Scorers: use("builtin:least-load").Scorers}, "filters[0]"},
		"unknown built-in":         {use("builtin:fastest"), "builtin:backlog-tokens, builtin:kv-aware, builtin:least-load, builtin:lmetric"},
		"config of least-load":     {withConfig("builtin:least-load", `{"a":1}`), "no configuration"},
		"unknown config name":      {withConfig("builtin:kv-aware", `{"overlap_weight":1}`), "overlap_weight"},
		"negative weight":          {withConfig("builtin:kv-aware", `{"overlap_credit":-1}`), "overlap_credit"},
		"infinite weight":          {withConfig("builtin:kv-aware", `{"overlap_credit":1e999}`), "overlap_credit"},
		"tier weight above 1":      {withConfig("builtin:kv-aware", `{"disk_weight":1.5}`), "from 0 to 1"},
		"unknown fallback":         {policy.Spec{Scorers: use("builtin:kv-aware").Scorers, Fallback: "builtin:x"}, "fallback"},
		"second module is missing": {use("module:a", "module:b"), "scorers[1]"},
	} {
		t.Run(name, func(t *testing.T) {
			var src policy.StageSource
			if name == "second module is missing" {
				src = modules{"module:a": closed}
			}
			_, _, err := policy.Compile(t.Context(), c.spec, src)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v; want an error with %q", err, c.want)
			}
		})
	}
	if closed.closed != 1 {
		t.Errorf("the first stage was closed %d times; want 1", closed.closed)
	}
}

func withConfig(stage, config string) policy.Spec {
	return policy.Spec{Scorers: []policy.ScorerSpec{{StageSpec: policy.StageSpec{Use: stage, Config: json.RawMessage(config)}}}}
}

func FuzzParseSpec(f *testing.F) {
	f.Add([]byte(`{"scorers":[{"use":"builtin:kv-aware","weight":2,"config":{"host_weight":0.5}}],"fallback":"builtin:least-load"}`))
	f.Add([]byte(`{"scorers":[{"use":"module:a@sha256:00","normalise":"rank","on_error":"skip"}],"picker":null}`))
	f.Add([]byte(`{"scorers":[null]}`))
	f.Add([]byte(`{"filters":[{"use":"module:f","on_empty":"fail"}],"lora":[{"use":"builtin:lora-affinity"}],"picker":{"use":"builtin:softmax","config":{"temperature":1}}}`))
	f.Add([]byte(`{"policy":{"use":"module:p","on_error":"fail"}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := policy.ParseSpec(b)
		if err != nil {
			return
		}
		text, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		again, err := policy.ParseSpec(text)
		if err != nil {
			t.Fatalf("its own form is refused: %v\n%s", err, text)
		}
		if diff := cmp.Diff(s, again); diff != "" {
			t.Errorf("(-first +second):\n%s", diff)
		}
	})
}
