package policy_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/fleet"
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
		`"picker":{"use":"builtin:best"},"fallback":"builtin:kv-aware"}`
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
		"unknown key":            {`{"scorers":[` + scorer + `],"scorer":1}`, "policy"},
		"key in another case":    {`{"Scorers":[` + scorer + `]}`, "policy"},
		"repeated key":           {`{"scorers":[` + scorer + `],"scorers":[]}`, "policy.scorers"},
		"repeated key in config": {`{"scorers":[{"use":"builtin:kv-aware","config":{"a":1,"a":2}}]}`, "policy.scorers[0].config.a"},
		"unknown scorer key":     {`{"scorers":[{"use":"builtin:kv-aware","wieght":1}]}`, "scorers[0]"},
		"unknown picker key":     {`{"scorers":[` + scorer + `],"picker":{"uses":"x"}}`, "picker"},
		"wrong type":             {`{"scorers":[{"use":"builtin:kv-aware","weight":"1"}]}`, "scorers.weight"},
		"no scorers":             {`{}`, "scorers"},
		"many scorers":           {`{"scorers":[` + many + `]}`, "scorers"},
		"weight":                 {`{"scorers":[{"use":"builtin:kv-aware","weight":1e7}]}`, "scorers[0].weight"},
		"normalise":              {`{"scorers":[{"use":"builtin:kv-aware","normalise":"zscore"}]}`, "scorers[0].normalise"},
		"on_error":               {`{"scorers":[{"use":"builtin:kv-aware","on_error":"panic"}]}`, "scorers[0].on_error"},
		"use":                    {`{"scorers":[{"use":"kv-aware"}]}`, "scorers[0].use"},
		"preset":                 {`{"scorers":[{"use":"preset:kv-aware"}]}`, "scorers[0].use"},
		"filters":                {`{"filters":[],"scorers":[` + scorer + `]}`, "filters"},
		"lora":                   {`{"lora":[],"scorers":[` + scorer + `]}`, "lora"},
		"policy":                 {`{"policy":{"use":"module:x"}}`, "policy"},
		"picker":                 {`{"scorers":[` + scorer + `],"picker":{"use":"module:x"}}`, "picker.use"},
		"picker config":          {`{"scorers":[` + scorer + `],"picker":{"use":"builtin:best","config":{"t":1}}}`, "picker.config"},
		"fallback":               {`{"scorers":[` + scorer + `],"fallback":"module:x"}`, "fallback"},
		"not an object":          {`[]`, "policy"},
		"two values":             {`{} {}`, "policy"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := policy.ParseSpec([]byte(c.spec))
			f, ok := errors.AsType[*fleet.FieldError](err)
			if !ok || f.Field != c.field {
				t.Errorf("got %v; want a refusal of %q", err, c.field)
			}
		})
	}
}

func TestCompileRefuses(t *testing.T) {
	closed := scores(1)
	for name, c := range map[string]struct {
		spec policy.Spec
		want string
	}{
		"module without a source":  {use("module:x"), "scorers[0]"},
		"unknown built-in":         {use("builtin:fastest"), "builtin:kv-aware, builtin:least-load, builtin:round-robin"},
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
