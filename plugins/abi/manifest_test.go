package abi_test

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/plugins/abi"
)

const least = `{"abi":"routerd.policy/v1","name":"least-loaded","version":"1.0.0","kinds":["scorer"]}`

const full = `{
  "abi": "routerd.policy/v1", "minor": 0, "name": "kv-aware", "version": "1.2.3-rc.1+build.5",
  "description": "picks where the prefix is", "license": "Apache-2.0", "source": "https://example.org/kv",
  "kinds": ["scorer", "policy"],
  "columns": [
    {"name": "kv.overlap_device", "required": true, "missing": -1.5},
    {"name": "label.zone", "required": false, "missing": "nan"},
    {"name": "label_num.rack"},
    {"name": "engine.report_age_ms"},
    {"name": "later.column", "required": false}
  ],
  "request_fields": ["isl_blocks", "header.x-tier", "config.weights/0", "config.a~1b"],
  "config_schema": {"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object",
    "properties": {"w": {"$ref": "#/$defs/weight"}}, "$defs": {"weight": {"type": "number"}}},
  "limits": {"memory_pages": 100, "fuel_base": 5, "fuel_per_row": 6, "max_rows": 7},
  "state": "instance", "deterministic": false, "imports": ["log", "trace"],
  "score_range": {"min": -1e9, "max": 0}, "monotonic": [{"column": "kv.overlap_device", "direction": "increasing"}],
  "metrics": [{"name": "hits", "type": "counter", "help": "hits"}], "traces": ["cost"],
  "sdk": {"name": "go", "version": "0.1.0"}, "ext": {"anything": ["goes", {"x": null}]}
}`

func TestParseManifestFillsDefaults(t *testing.T) {
	got, err := abi.ParseManifest([]byte(least))
	if err != nil {
		t.Fatal(err)
	}
	want := &abi.Manifest{
		ABI: abi.ManifestABI, Name: "least-loaded", Version: "1.0.0",
		Kinds:  []abi.Kind{abi.KindScorer},
		Limits: abi.Limits{MemoryPages: 64, FuelBase: 100_000, FuelPerRow: 1_500, MaxRows: 1_024},
		State:  abi.StateNone, Deterministic: true,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestParseManifestGivesGoGuestsMoreMemory(t *testing.T) {
	m, err := abi.ParseManifest([]byte(strings.Replace(least, `"kinds"`, `"sdk":{"name":"go"},"kinds"`, 1)))
	if err != nil || m.Limits.MemoryPages != 256 {
		t.Errorf("got %+v, %v", m, err)
	}
}

func TestParseManifestReadsEveryField(t *testing.T) {
	m, err := abi.ParseManifest([]byte(full))
	if err != nil {
		t.Fatal(err)
	}
	wantColumns := []abi.ManifestColumn{
		{Name: "kv.overlap_device", Required: true, Missing: -1.5},
		{Name: "label.zone", Missing: math.NaN()},
		{Name: "label_num.rack", Required: true},
		{Name: "engine.report_age_ms", Required: true, Missing: abi.MissingAge},
		{Name: "later.column"},
	}
	if d := cmp.Diff(wantColumns, m.Columns, cmp.Comparer(sameBits)); d != "" {
		t.Error(d)
	}
	if bits := math.Float64bits(m.Columns[1].Missing); bits != abi.CanonicalNaNBits || !m.Columns[1].MissingNaN() {
		t.Errorf("missing nan has bits %#x", bits)
	}
	if d := cmp.Diff(abi.Limits{MemoryPages: 100, FuelBase: 5, FuelPerRow: 6, MaxRows: 7}, m.Limits); d != "" {
		t.Error(d)
	}
	if !m.HasKind(abi.KindPolicy) || m.HasKind(abi.KindFilter) || m.State != abi.StateInstance || m.Deterministic {
		t.Errorf("got %+v", m)
	}
	if d := cmp.Diff([]string{"log", "trace"}, m.Imports); d != "" {
		t.Error(d)
	}
	if string(m.Ext) != `{"anything": ["goes", {"x": null}]}` {
		t.Errorf("ext = %s", m.Ext)
	}
	if !strings.HasPrefix(string(m.ConfigSchema), `{"$schema"`) || !json.Valid(m.ConfigSchema) {
		t.Errorf("config_schema = %s", m.ConfigSchema)
	}
}

// sameBits takes two missing values as equal when both are the same number or
// both NaN.
func sameBits(a, b float64) bool { return a == b || math.IsNaN(a) && math.IsNaN(b) }

func TestEncodeReadsBackEqual(t *testing.T) {
	for _, in := range []string{least, full} {
		m, err := abi.ParseManifest([]byte(in))
		if err != nil {
			t.Fatal(err)
		}
		checkRoundTrip(t, m)
	}
}

func checkRoundTrip(t *testing.T, m *abi.Manifest) {
	t.Helper()
	data, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if len(data) > abi.MaxManifestBytes {
		return // indenting made a manifest near the limit too large
	}
	back, err := abi.ParseManifest(data)
	if err != nil {
		t.Fatalf("%v in\n%s", err, data)
	}
	raw := cmp.Comparer(func(a, b json.RawMessage) bool { return compact(t, a) == compact(t, b) })
	if d := cmp.Diff(m, back, cmp.Comparer(sameBits), raw); d != "" {
		t.Error(d)
	}
}

func compact(t *testing.T, raw json.RawMessage) string {
	t.Helper()
	if raw == nil {
		return ""
	}
	var v any
	dec := json.NewDecoder(strings.NewReader(string(raw)))
	dec.UseNumber()
	if err := dec.Decode(&v); err != nil {
		t.Fatal(err)
	}
	out, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// with puts more fields into the least manifest.
func with(fields string) string { return strings.TrimSuffix(least, "}") + "," + fields + "}" }

func TestParseManifestRefusesByName(t *testing.T) {
	long := strings.Repeat("x", 257)
	for _, c := range []struct{ name, in, field, value string }{
		{"too large", with(`"ext":{"x":"` + strings.Repeat("y", 64<<10) + `"}`), "manifest", "bytes"},
		{"no object", `[]`, "manifest", "a list"},
		{"not JSON", `{"abi":`, "abi", "EOF"},
		{"empty", ``, "manifest", "EOF"},
		{"more behind", least + `{}`, "manifest", "more"},
		{"not UTF-8", "{\"abi\":\"\xff\"}", "manifest", "UTF-8"},
		{"unknown field", with(`"fule":1`), "fule", "1"},
		{"unknown field below", with(`"limits":{"memory":1}`), "limits.memory", "1"},
		{"other letter case", with(`"State":"none"`), "State", "none"},
		{"field twice", with(`"name":"other"`), "name", "twice"},
		{"field twice by escape", with(`"n\u0061me":"other"`), "name", "twice"},
		{"field twice in ext", with(`"ext":{"a":1,"a":2}`), "ext.a", "twice"},
		{"field twice in the schema", with(`"config_schema":{"a":{"b":1,"b":1}}`), "config_schema.a.b", "twice"},
		{"too deep", with(`"ext":{"a":` + strings.Repeat("[", 70) + strings.Repeat("]", 70) + `}`), "ext.a", "levels"},
		{"long string", with(`"description":"` + long + `"`), "description", "xxx"},
		{"long key in the schema", with(`"config_schema":{"` + long + `":1}`), "config_schema", "xxx"},
		{"control character", with(`"license":"a\u0007b"`), "license", "a\ab"},
		{"other abi", strings.Replace(least, "policy/v1", "policy/v2", 1), "abi", "policy/v2"},
		{"no name", strings.Replace(least, `"name":"least-loaded",`, "", 1), "name", ""},
		{"name", strings.Replace(least, "least-loaded", "Least_Loaded", 1), "name", "Least_Loaded"},
		{"name of one letter", strings.Replace(least, "least-loaded", "l", 1), "name", "l"},
		{"version", strings.Replace(least, "1.0.0", "1.00.0", 1), "version", "1.00.0"},
		{"version of two numbers", strings.Replace(least, "1.0.0", "1.0", 1), "version", "1.0"},
		{"pre-release", strings.Replace(least, "1.0.0", "1.0.0-01", 1), "version", "1.0.0-01"},
		{"minor", with(`"minor":-1`), "minor", "-1"},
		{"no kinds", strings.Replace(least, `["scorer"]`, `[]`, 1), "kinds", "none"},
		{"kind", strings.Replace(least, `"scorer"]`, `"scorre"]`, 1), "kinds[0]", "scorre"},
		{"kind twice", strings.Replace(least, `"scorer"]`, `"scorer","scorer"]`, 1), "kinds[1]", "scorer"},
		{"column", with(`"columns":[{"name":"kv.overlap_devcie"}]`), "columns[0].name", "kv.overlap_devcie"},
		{"column not required and no name", with(`"columns":[{"name":"Kv!","required":false}]`), "columns[0].name", "Kv!"},
		{"label without key", with(`"columns":[{"name":"label."}]`), "columns[0].name", "label."},
		{"column twice", with(`"columns":[{"name":"kv.usage"},{"name":"kv.usage"}]`), "columns[1].name", "kv.usage"},
		{"column is no object", with(`"columns":["kv.usage"]`), "columns[0]", "kv.usage"},
		{"missing", with(`"columns":[{"name":"kv.usage","missing":"NaN"}]`), "columns[0].missing", "NaN"},
		{"missing infinite", with(`"columns":[{"name":"kv.usage","missing":1e999}]`), "columns[0].missing", "1e999"},
		{"required", with(`"columns":[{"name":"kv.usage","required":"yes"}]`), "columns[0].required", "yes"},
		{"request field", with(`"request_fields":["isl"]`), "request_fields[0]", "isl"},
		{"request field twice", with(`"request_fields":["model","model"]`), "request_fields[1]", "model"},
		{"header in upper case", with(`"request_fields":["header.X-Tier"]`), "request_fields[0]", "header.X-Tier"},
		{"config pointer", with(`"request_fields":["config.a~2"]`), "request_fields[0]", "config.a~2"},
		{"schema is a list", with(`"config_schema":[]`), "config_schema", "a list"},
		{"reference outside", with(`"config_schema":{"properties":{"a":{"$ref":"http://x/y"}}}`), "config_schema.properties.a.$ref", "http://x/y"},
		{"reference in a list", with(`"config_schema":{"allOf":[{"$ref":"other.json"}]}`), "config_schema.allOf[0].$ref", "other.json"},
		{"dialect", with(`"config_schema":{"$schema":"http://json-schema.org/draft-07/schema#"}`), "config_schema.$schema", "draft-07"},
		{"schema too large", with(`"config_schema":{"enum":[` + strings.Repeat("1,", 1000) + `1]}`), "config_schema", "1003 values"},
		{"pages", with(`"limits":{"memory_pages":1025}`), "limits.memory_pages", "1025"},
		{"rows", with(`"limits":{"max_rows":0}`), "limits.max_rows", "0"},
		{"fuel as a fraction", with(`"limits":{"fuel_base":1.5}`), "limits.fuel_base", "1.5"},
		{"limits", with(`"limits":7`), "limits", "7"},
		{"state", with(`"state":"global"`), "state", "global"},
		{"import", with(`"imports":["fetch"]`), "imports[0]", "fetch"},
		{"import twice", with(`"imports":["log","log"]`), "imports[1]", "log"},
		{"range", with(`"score_range":{"min":2,"max":1}`), "score_range.min", "2"},
		{"half a range", with(`"score_range":{"min":2}`), "score_range", "one end"},
		{"monotonic", with(`"monotonic":[{"column":"kv.usage","direction":"increasing"}]`), "monotonic[0].column", "kv.usage"},
		{"metric", with(`"metrics":[{"name":"Hits","type":"counter"}]`), "metrics[0].name", "Hits"},
		{"metric type", with(`"metrics":[{"name":"hits","type":"histogram"}]`), "metrics[0].type", "histogram"},
		{"too many traces", with(`"traces":["a"` + strings.Repeat(`,"b"`, 16) + `]`), "traces", "17 values"},
		{"sdk", with(`"sdk":{"version":"1"}`), "sdk.name", ""},
		{"ext", with(`"ext":1`), "ext", "1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := abi.ParseManifest([]byte(c.in))
			var refused *abi.ManifestError
			if !errors.As(err, &refused) {
				t.Fatalf("got %v, want a ManifestError", err)
			}
			if !strings.HasPrefix(refused.Field, c.field) || !strings.Contains(refused.Value, c.value) || refused.Allowed == "" {
				t.Errorf("got %+v, want field %q and value %q", refused, c.field, c.value)
			}
			if len(err.Error()) > 600 {
				t.Errorf("error of %d bytes", len(err.Error()))
			}
		})
	}
}

func TestManifestErrorIsOnePrintableLine(t *testing.T) {
	_, err := abi.ParseManifest([]byte(with(`"bad\nname\u0001":"a\nb"`)))
	if err == nil || strings.ContainsAny(err.Error(), "\n\x01") {
		t.Errorf("got %q", err)
	}
}

func FuzzParseManifest(f *testing.F) {
	f.Add([]byte(least))
	f.Add([]byte(full))
	f.Add([]byte(with(`"columns":[{"name":"kv.usage","missing":"nan"}]`)))
	f.Add([]byte(with(`"config_schema":true`)))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := abi.ParseManifest(data)
		if err != nil {
			var refused *abi.ManifestError
			if !errors.As(err, &refused) || refused.Field == "" || refused.Allowed == "" {
				t.Fatalf("%#v is no full refusal", err)
			}
			return
		}
		checkRoundTrip(t, m)
	})
}
