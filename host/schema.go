package host

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/routerd/routerd/plugins/abi"
)

// schemaURL names the schema document; nothing is fetched from there.
const schemaURL = "routerd:config"

// Bounds of the work of a validation. A step is a schema that looks at a value;
// it takes about a microsecond.
const (
	maxSchemaSteps   = 10_000    // at one value, whatever the value
	maxConfigSteps   = 1_000_000 // of a configuration, when a policy is made
	maxOverrideSteps = 100_000   // of a request's override
	bytesPerStep     = 32        // of text, which patterns read
)

// noLoader refuses every document that a schema refers to outside itself.
type noLoader struct{}

// Load always fails.
func (noLoader) Load(url string) (any, error) {
	return nil, fmt.Errorf("reference to %q is outside the schema", url)
}

// configSchema is a manifest's config_schema. Immutable.
type configSchema struct {
	schema *jsonschema.Schema
	steps  int // the most at one value, at most maxSchemaSteps
}

// compileSchema reads a manifest's config_schema; nil for none. A schema may be
// as small as a kilobyte and still keep a validator busy for hours, so how often
// it can look at one value is bounded here.
func compileSchema(raw json.RawMessage) (*configSchema, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	refused := func(err error) error {
		return refuse(StepManifest, abi.EManifest, "config_schema: "+clip(err.Error(), 400), "JSON Schema 2020-12 without outside references")
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return nil, refused(err)
	}
	if item := badNumber(doc, "config_schema"); item != "" {
		return nil, refuse(StepManifest, abi.EManifest, item, numberAllowed)
	}
	c := jsonschema.NewCompiler()
	c.UseLoader(noLoader{})
	c.DefaultDraft(jsonschema.Draft2020)
	if err := c.AddResource(schemaURL, doc); err != nil {
		return nil, refused(err)
	}
	s, err := c.Compile(schemaURL)
	if err != nil {
		return nil, refused(err)
	}
	steps, item := newStepCounter().count(s)
	if item == "" && steps > maxSchemaSteps {
		item = "more than " + fmt.Sprint(maxSchemaSteps) + " steps for one value"
	}
	if item != "" {
		return nil, refuse(StepManifest, abi.EManifest, "config_schema: "+clip(item, 200),
			fmt.Sprintf("a schema without recursion and $dynamicRef, with up to %d steps when every $ref is written out", maxSchemaSteps))
	}
	return &configSchema{schema: s, steps: steps}, nil
}

// validate checks a value within a number of steps. An error is the schema
// library's unless the value is too large.
func (s *configSchema) validate(v any, most int) error {
	if size := valueSize(v); size > most/s.steps {
		return fmt.Errorf("too large for the module's config_schema: size %d (1 for each value and %d bytes of text), allowed: %d", size, bytesPerStep, most/s.steps)
	}
	return s.schema.Validate(v)
}

// valueSize is 1 for each value and more for text.
func valueSize(v any) int {
	switch v := v.(type) {
	case string:
		return 1 + len(v)/bytesPerStep
	case []any:
		n := 1
		for _, x := range v {
			n += valueSize(x)
		}
		return n
	case map[string]any:
		n := 1
		for k, x := range v {
			n += len(k)/bytesPerStep + valueSize(x)
		}
		return n
	}
	return 1
}

// stepCounter counts how many schemas can look at one value, with every
// reference written out.
type stepCounter struct {
	known map[*jsonschema.Schema]int // 0 while it is being counted
}

func newStepCounter() *stepCounter { return &stepCounter{known: map[*jsonschema.Schema]int{}} }

// count stops above maxSchemaSteps. item says what is not allowed.
func (c *stepCounter) count(s *jsonschema.Schema) (steps int, item string) {
	if n, ok := c.known[s]; ok {
		if n == 0 {
			return 0, "recursion through " + s.Location
		}
		return n, ""
	}
	if s.DynamicRef != nil || s.RecursiveRef != nil {
		return 0, "$dynamicRef at " + s.Location
	}
	c.known[s] = 0
	steps = 1 + len(s.Required) + len(s.PatternProperties)
	if s.Enum != nil {
		steps += len(s.Enum.Values)
	}
	for _, sub := range subschemas(s) {
		n, item := c.count(sub)
		if item != "" {
			return 0, item
		}
		steps = min(steps+n, maxSchemaSteps+1)
	}
	c.known[s] = steps
	return steps, ""
}

// subschemas lists the schemas that s applies to its value or to parts of it.
func subschemas(s *jsonschema.Schema) []*jsonschema.Schema {
	out := []*jsonschema.Schema{
		s.Ref, s.Not, s.If, s.Then, s.Else, s.PropertyNames, s.UnevaluatedProperties,
		s.Contains, s.Items2020, s.UnevaluatedItems, s.ContentSchema,
	}
	for _, list := range [][]*jsonschema.Schema{s.AllOf, s.AnyOf, s.OneOf, s.PrefixItems} {
		out = append(out, list...)
	}
	for _, v := range []any{s.AdditionalProperties, s.Items, s.AdditionalItems} {
		switch v := v.(type) {
		case *jsonschema.Schema:
			out = append(out, v)
		case []*jsonschema.Schema:
			out = append(out, v...)
		}
	}
	for _, sub := range s.Properties {
		out = append(out, sub)
	}
	for _, sub := range s.PatternProperties {
		out = append(out, sub)
	}
	for _, sub := range s.DependentSchemas {
		out = append(out, sub)
	}
	for _, v := range s.Dependencies {
		if sub, ok := v.(*jsonschema.Schema); ok {
			out = append(out, sub)
		}
	}
	present := out[:0]
	for _, sub := range out {
		if sub != nil {
			present = append(present, sub)
		}
	}
	return present
}

// schemaPlace is where the first thing is that a schema found wrong: the steps
// of a JSON pointer, empty for the value as a whole.
func schemaPlace(err error) string {
	var v *jsonschema.ValidationError
	if !errors.As(err, &v) {
		return ""
	}
	for len(v.Causes) > 0 {
		v = v.Causes[0]
	}
	steps := slices.Clone(v.InstanceLocation)
	for i, step := range steps {
		steps[i] = strings.NewReplacer("~", "~0", "/", "~1").Replace(step)
	}
	return strings.Join(steps, "/")
}

// schemaMessage is the first thing that a schema found wrong, with its place.
func schemaMessage(err error) string {
	var v *jsonschema.ValidationError
	if !errors.As(err, &v) {
		return err.Error()
	}
	for len(v.Causes) > 0 {
		v = v.Causes[0]
	}
	text := strings.TrimSpace(v.Error())
	if i := strings.LastIndex(text, "\n- "); i >= 0 {
		text = text[i+3:]
	} else if i := strings.LastIndex(text, "\n"); i >= 0 {
		text = text[i+1:]
	}
	return strings.TrimSpace(text)
}

// undeclared finds a request field config.<pointer> whose first step is no
// property of the configuration's schema: it would always be 0. A schema that
// names no properties at its top, or allows others, says nothing about that.
func undeclared(m *abi.Manifest) (what, allowed string) {
	var top struct {
		Properties map[string]json.RawMessage `json:"properties"`
		Additional json.RawMessage            `json:"additionalProperties"`
	}
	if len(m.ConfigSchema) > 0 && json.Unmarshal(m.ConfigSchema, &top) != nil {
		return "", "" // a schema that is no object is refused where it is compiled
	}
	if len(m.ConfigSchema) > 0 && string(top.Additional) != "false" {
		return "", ""
	}
	for _, f := range m.RequestFields {
		pointer, ok := abi.ConfigPointer(f)
		if !ok {
			continue
		}
		first, _, _ := strings.Cut(strings.TrimPrefix(pointer, "/"), "/")
		first = strings.NewReplacer("~1", "/", "~0", "~").Replace(first)
		if _, ok := top.Properties[first]; !ok {
			return "request field " + f + ": config_schema has no property " + strconv.Quote(first),
				"config.<one of " + strings.Join(slices.Sorted(maps.Keys(top.Properties)), ", ") + ">"
		}
	}
	return "", ""
}
