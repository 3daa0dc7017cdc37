package host_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/routerd/routerd/host"
	. "github.com/routerd/routerd/host/wasmtest"
	"github.com/routerd/routerd/plugins/abi"
)

// doubling has n definitions, each naming the next twice.
func doubling(n int) string {
	var b strings.Builder
	b.WriteString(`{"$defs":{`)
	for i := range n {
		fmt.Fprintf(&b, `"a%d":{"allOf":[{"$ref":"#/$defs/a%d"},{"$ref":"#/$defs/a%d"}]},`, i, i+1, i+1)
	}
	fmt.Fprintf(&b, `"a%d":true},"$ref":"#/$defs/a0"}`, n)
	return b.String()
}

func TestSchemasThatWouldKeepTheValidatorBusyAreRefused(t *testing.T) {
	for name, tc := range map[string]struct{ schema, text string }{
		"doubling references":    {doubling(60), "more than 10000 steps"},
		"recursion in place":     {`{"allOf":[{"$ref":"#"}]}`, "recursion"},
		"recursion in items":     {`{"allOf":[{"items":{"$ref":"#"}},{"items":{"$ref":"#"}}]}`, "recursion"},
		"recursion by an anchor": {`{"$anchor":"a","properties":{"x":{"$ref":"#a"}}}`, "recursion"},
		"dynamic reference":      {`{"$dynamicAnchor":"a","properties":{"x":{"$dynamicRef":"#a"}}}`, "$dynamicRef"},
		"default past f64":       {`{"properties":{"x":{"default":1e2000000,"minimum":1}}}`, "config_schema/properties/x/default: number 1e2000000"},
		"bound past f64":         {`{"minimum":1e999999}`, "config_schema/minimum: number 1e999999"},
		"tiny fraction":          {`{"multipleOf":1e-999999}`, "config_schema/multipleOf: number 1e-999999"},
		"number in an enum":      {`{"enum":[1,1e999]}`, "config_schema/enum/1: number 1e999"},
	} {
		t.Run(name, func(t *testing.T) {
			began := time.Now()
			le := refused(t, newRuntime(t), Guest{Extra: `,"config_schema":` + tc.schema}.Bytes(), "")
			if le.Code != abi.EManifest || le.Step != host.StepManifest || !strings.Contains(le.Item, tc.text) {
				t.Errorf("got %v, want E_MANIFEST with %q", le, tc.text)
			}
			if took := time.Since(began); took > 20*time.Second { // unbounded it takes for ever
				t.Errorf("took %s", took)
			}
		})
	}
}

func TestConfigFieldsThatTheSchemaDoesNotHaveAreRefused(t *testing.T) {
	const closed = `,"config_schema":{"properties":{"zone_weight":{"default":1},"a/b":{}},"additionalProperties":false}`
	for fields, schema := range map[string]string{`["config.zone_wieght"]`: closed, `["config.x"]`: ""} {
		le := refused(t, newRuntime(t), Guest{Extra: `,"request_fields":` + fields + schema}.Bytes(), "")
		if le.Code != abi.EManifest || !strings.Contains(le.Item, "config_schema has no property") {
			t.Errorf("%s: got %v", fields, le)
		}
	}
	for fields, schema := range map[string]string{
		`["config.zone_weight","config.a~1b","config.zone_weight/deep"]`: closed,
		`["config.x"]`: `,"config_schema":{"properties":{"y":{}}}`,
	} {
		stage(t, newRuntime(t), Guest{Extra: `,"request_fields":` + fields + schema}.Bytes(), "")
	}
}

func TestSchemasWithinTheBoundLoad(t *testing.T) {
	for _, schema := range []string{doubling(10), `{"properties":{"x":{"$ref":"#/$defs/n"},"y":{"$ref":"#/$defs/n"}},"$defs":{"n":{"minimum":1e-300,"maximum":1.7e308}}}`} {
		stage(t, newRuntime(t), Guest{Extra: `,"config_schema":` + schema}.Bytes(), "")
	}
}

func TestOverrideThatWouldTakeTooLongIsRefused(t *testing.T) {
	s := stage(t, newRuntime(t), Guest{Extra: `,"request_fields":["config.x"],"config_schema":` + doubling(10)}.Bytes(), "")
	if _, err := s.CheckOverrides(map[string]json.RawMessage{"x": json.RawMessage(`"short"`)}); err != nil {
		t.Error(err)
	}
	known, err := s.CheckOverrides(map[string]json.RawMessage{"x": json.RawMessage(`"` + strings.Repeat("x", 60_000) + `"`)})
	if err == nil || !strings.Contains(err.Error(), "too large") {
		t.Errorf("got %v, %v, want a refusal", known, err)
	}
}
