package host_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/host"
	. "github.com/routerd/routerd/host/wasmtest"
	"github.com/routerd/routerd/plugins/abi"
)

const schema = `,"request_fields":["config.a","config.deep/b","config.word","isl_tokens"],"config_schema":{
 "type":"object","additionalProperties":false,"properties":{
  "a":{"type":"number","minimum":0,"maximum":10,"default":2.5},
  "deep":{"type":"object","default":{},"properties":{"b":{"type":"boolean"}}},
  "word":{"type":"string"}}}`

// configured scores every row with the sum of its four request fields.
func configured() []byte {
	return Guest{
		ScoreTypes: ColumnTypes, Extra: schema,
		Score: Constant(Field(0), Field(1), Op(F64Add), Field(2), Op(F64Add), Field(3), Op(F64Add)),
	}.Bytes()
}

func scoreWith(t *testing.T, s policy.Scorer, overrides map[string]json.RawMessage) float64 {
	t.Helper()
	tab := table(s, 1)
	tab.SetField(abi.FieldISLTokens, 1000)
	tab.Overrides = overrides
	out := make([]float64, 1)
	if _, err := s.Score(context.Background(), tab, out, &policy.StageReport{}); err != nil {
		t.Fatal(err)
	}
	return out[0]
}

func TestConfigurationReachesTheGuestAsFields(t *testing.T) {
	r := newRuntime(t)
	for config, want := range map[string]float64{
		"":                             1002.5,
		`{"a":4}`:                      1004,
		`{"deep":{"b":true}}`:          1003.5,
		`{"word":"x","a":0}`:           1000 + abi.ID("x"),
		` { "a" : 1e0 , "deep": {} } `: 1001,
	} {
		if got := scoreWith(t, stage(t, r, configured(), config), nil); got != want {
			t.Errorf("config %s: got %v, want %v", config, got, want)
		}
	}
}

func TestConfigurationIsHandedOverCanonical(t *testing.T) {
	const want = `{"a":1,"deep":{},"word":"é"}`
	// Scores the length of the configuration, and traps unless its second byte
	// is a quotation mark.
	g := Guest{
		ScoreTypes: ColumnTypes, Extra: schema, Before: func(m *Module) { m.Global(0) },
		Configure: Cat(Get(0), Op(0x2d, 0, 1), I32('"'), Op(0x47), If(Op(Unreachable)), Get(1), SetGlobal(1), I32(0)), // i32.load8_u
		Score:     Constant(GetGlobal(1), Op(F64ConvertU)),
	}
	s := stage(t, newRuntime(t), g.Bytes(), ` {"word":"\u00e9" , "a":1.0}`)
	if got := scoreWith(t, s, nil); got != float64(len(want)) {
		t.Errorf("length: got %v, want %d of %s", got, len(want), want)
	}
}

func TestConfigurationThatIsRefused(t *testing.T) {
	r := newRuntime(t)
	loose := Guest{Extra: `,"config_schema":{"properties":{"x":{"minimum":1}},"enum":[` + strings.Repeat("1,", 50) + `{}]}`}.Bytes()
	var wide strings.Builder
	for i := range 180 {
		fmt.Fprintf(&wide, `"b%d":{"default":%q},`, i, strings.Repeat("y", 200))
	}
	for name, tc := range map[string]struct {
		wasm   []byte
		config string
		text   string
	}{
		"out of range":  {configured(), `{"a":11}`, "maximum"},
		"unknown key":   {configured(), `{"zzz":1}`, "zzz"},
		"wrong type":    {configured(), `{"a":"x"}`, "/a"},
		"no JSON":       {configured(), `{"a":`, ""},
		"too large":     {configured(), `{"word":"` + strings.Repeat("x", 70_000) + `"}`, "bytes"},
		"no f64":        {configured(), `{"a":1e400}`, "/a: number 1e400"},
		"fraction":      {loose, `{"x":[0,1e-999999]}`, "/x/1: number 1e-999999"},
		"huge power":    {loose, `{"x":1e2000000}`, "/x: number 1e2000000"},
		"zero, power":   {loose, `{"x":0e2000000}`, "/x: number 0e2000000"},
		"long number":   {loose, `{"x":` + strings.Repeat("1", 65) + `}`, "/x: number 1111"},
		"defaults":      {Guest{Extra: `,"config_schema":{"properties":{` + wide.String() + `"c":{}}}`}.Bytes(), `{"c":"` + strings.Repeat("x", 40_000) + `"}`, "with the schema's defaults"},
		"too many":      {loose, `{"y":[` + strings.Repeat("1,", 30_000) + `1]}`, "too large for the module's config_schema"},
		"no schema":     {good(), `{"a":1}`, ""},
		"guest says no": {Guest{Configure: I32(-3)}.Bytes(), ``, "bad_config"},
	} {
		le := refused(t, r, tc.wasm, tc.config)
		if le.Code != abi.EConfigure || !strings.Contains(le.Item, tc.text) {
			t.Errorf("%s: got %v, want E_CONFIGURE with %q", name, le, tc.text)
		}
	}
}

func TestSchemaNeverLeavesTheDocument(t *testing.T) {
	for name, schema := range map[string]string{
		"remote":      `{"$ref":"https://example.com/s.json"}`,
		"file":        `{"$ref":"file:///etc/passwd"}`,
		"by identity": `{"$id":"https://example.com/","allOf":[{"$id":"x","$ref":"#/nope"}]}`,
	} {
		le := refused(t, newRuntime(t), Guest{Extra: `,"config_schema":` + schema}.Bytes(), "")
		if le.Code != abi.EManifest || le.Step != host.StepManifest {
			t.Errorf("%s: got %v, want E_MANIFEST", name, le)
		}
	}
}

func TestOverrides(t *testing.T) {
	s := stage(t, newRuntime(t), configured(), `{"a":1}`)
	if got := scoreWith(t, s, map[string]json.RawMessage{"a": json.RawMessage("3"), "other": json.RawMessage("9")}); got != 1003 {
		t.Errorf("with a = 3: got %v, want 1003", got)
	}
	if got := scoreWith(t, s, nil); got != 1001 {
		t.Errorf("the next request: got %v, want 1001", got)
	}
	type outcome struct{ Known, Refused bool }
	got := map[string]outcome{}
	for _, o := range []string{"a=5", "a=11", "a=1e400", "a=1e-400", "a=1e2000000", `a="x"`, "a=[1]", "deep/b=true", "deep/b=3", "zzz=1", "isl_tokens=1"} {
		name, value, _ := strings.Cut(o, "=")
		known, err := s.CheckOverrides(map[string]json.RawMessage{name: json.RawMessage(value)})
		var fe *fleet.FieldError
		if err != nil && (!errors.As(err, &fe) || fe.Field != name) {
			t.Errorf("%s: got %v, want a refusal that names the field", o, err)
		}
		got[o] = outcome{len(known) == 1, err != nil}
	}
	want := map[string]outcome{
		"a=5": {true, false}, "a=11": {false, true}, "a=1e400": {false, true}, "a=1e-400": {false, true}, "a=1e2000000": {false, true}, `a="x"`: {false, true}, "a=[1]": {false, true},
		"deep/b=true": {true, false}, "deep/b=3": {false, true}, "zzz=1": {}, "isl_tokens=1": {},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("overrides (-want +got):\n%s", diff)
	}
}

// The schema sees the configuration as the request would have it: all of its
// overrides at once.
func TestOverridesAreCheckedTogether(t *testing.T) {
	// Both from 0 to 9; b, where it is above 5, needs a above 5.
	const both = `,"config_schema":{"type":"object","additionalProperties":false,
		"properties":{"a":{"type":"number","minimum":0,"maximum":9,"default":1},"b":{"type":"number","minimum":0,"maximum":9,"default":1}},
		"if":{"properties":{"b":{"exclusiveMinimum":5}}},"then":{"not":{"properties":{"a":{"maximum":5}}}}}`
	wasm := Guest{Extra: `,"request_fields":["config.a","config.b"]` + both}.Bytes()
	s := stage(t, newRuntime(t), wasm, "")
	for overrides, field := range map[string]string{
		`{"a":9}`:               "",
		`{"a":9,"b":9}`:         "", // b = 9 alone is refused
		`{"b":9}`:               "b",
		`{"a":2,"b":9}`:         "a, b",
		`{"a":2,"b":10}`:        "b",
		`{"a":10,"b":1}`:        "a",
		`{"a":2,"b":3,"zz":99}`: "",
	} {
		var o map[string]json.RawMessage
		if err := json.Unmarshal([]byte(overrides), &o); err != nil {
			t.Fatal(err)
		}
		known, err := s.CheckOverrides(o)
		refused, _ := errors.AsType[*fleet.FieldError](err)
		switch {
		case field == "" && (err != nil || len(known) == 0 || slices.Contains(known, "zz")):
			t.Errorf("%s: got %v, %v; want it allowed", overrides, known, err)
		case field != "" && (refused == nil || refused.Field != field || refused.Value == "" || refused.Allowed == ""):
			t.Errorf("%s: got %v; want a refusal of %s", overrides, err, field)
		}
	}
}
