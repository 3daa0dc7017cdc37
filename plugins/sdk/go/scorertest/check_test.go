package scorertest_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/plugins/abi"
	"github.com/routerd/routerd/plugins/sdk/go/scorer"
	"github.com/routerd/routerd/plugins/sdk/go/scorertest"
)

func TestCheckFindsWhatPackRefuses(t *testing.T) {
	const missing = `manifest has the request field config.bonus, and config_schema no property "bonus"`
	p := scorer.Plugin{Columns: []string{"kv.usage"}, Fields: []string{"config.bonus"}}
	for name, c := range map[string]struct {
		plugin scorer.Plugin
		schema string // with a comma after it
		want   []string
	}{
		"a property":                   {p, `"config_schema": {"type": "object", "additionalProperties": false, "properties": {"bonus": {"type": "number"}}},`, nil},
		"no schema":                    {p, "", []string{missing}},
		"another property":             {p, `"config_schema": {"additionalProperties": false, "properties": {"bonos": {}}},`, []string{missing}},
		"a schema that allows others":  {p, `"config_schema": {"type": "object"},`, nil},
		"a schema that is true":        {p, `"config_schema": true,`, nil},
		"a plugin without the field":   {scorer.Plugin{Columns: p.Columns}, `"config_schema": {"type": "object"},`, []string{`manifest has request fields ["config.bonus"], the plugin []`}},
		"a plugin with another column": {scorer.Plugin{Columns: []string{"kv.total_blocks"}, Fields: p.Fields}, `"config_schema": {"type": "object"},`, []string{`manifest has columns ["kv.usage"], the plugin ["kv.total_blocks"]`}},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.Replace(`{"abi": "routerd.policy/v1", "name": "p1", "version": "1.0.0", "kinds": ["scorer"], "columns": [{"name": "kv.usage"}],
				"request_fields": ["config.bonus"], SCHEMA "sdk": {"name": "go", "version": "0.1.0"}}`, "SCHEMA", c.schema, 1)
			m, err := abi.ParseManifest([]byte(text))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, scorertest.Differences(c.plugin, m)); diff != "" {
				t.Error(diff)
			}
		})
	}
}
