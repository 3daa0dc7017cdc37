package host

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/gowebpki/jcs"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/plugins/abi"
)

// maxConfig bounds a stage's configuration, in bytes of its canonical form.
const maxConfig = 64 << 10

// configuration is a stage's configuration, valid and canonical. Immutable.
type configuration struct {
	canonical []byte // RFC 8785, with the schema's defaults filled in
	value     any    // decoded, numbers as json.Number
	digest    string
}

// configure checks a configuration by the module's schema, fills in the
// defaults of its properties and makes it canonical. No configuration is {}.
func (m *module) configure(raw json.RawMessage) (*configuration, error) {
	if len(bytes.TrimSpace(raw)) == 0 {
		raw = json.RawMessage("{}")
	}
	allowed := "a configuration that the module's config_schema accepts"
	refused := func(item string) error { return refuse(StepConfig, abi.EConfigure, clip(item, 400), allowed) }
	if len(raw) > maxConfig {
		return nil, refuse(StepConfig, abi.EConfigure, strconv.Itoa(len(raw))+" bytes", fmt.Sprintf("up to %d bytes", maxConfig))
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return nil, refused(err.Error())
	}
	if item := badNumber(value, ""); item != "" {
		return nil, refuse(StepConfig, abi.EConfigure, item, numberAllowed)
	}
	if m.schema == nil {
		if obj, ok := value.(map[string]any); !ok || len(obj) > 0 {
			return nil, refuse(StepConfig, abi.EConfigure, clip(string(raw), 80), "nothing: the module declares no config_schema")
		}
	} else {
		value = withDefaults(m.schema.schema, value)
		if err := m.schema.validate(value, maxConfigSteps); err != nil {
			return nil, refused(schemaMessage(err))
		}
	}
	plain, err := json.Marshal(value)
	if err != nil {
		return nil, refused(err.Error())
	}
	canonical, err := jcs.Transform(plain)
	if err != nil {
		return nil, refused(err.Error())
	}
	if len(canonical) > maxConfig {
		return nil, refuse(StepConfig, abi.EConfigure, fmt.Sprintf("%d bytes with the schema's defaults", len(canonical)), fmt.Sprintf("up to %d bytes", maxConfig))
	}
	return &configuration{canonical: canonical, value: value, digest: Digest(canonical)}, nil
}

// withDefaults fills in the default of each property that is not there, at any
// depth that is reached by properties alone. It changes no value in place.
func withDefaults(s *jsonschema.Schema, v any) any {
	obj, ok := v.(map[string]any)
	if !ok || s == nil {
		return v
	}
	out := make(map[string]any, len(obj))
	for k, x := range obj {
		out[k] = x
	}
	for name, sub := range s.Properties {
		if have, ok := out[name]; ok {
			out[name] = withDefaults(sub, have)
			continue
		}
		if sub.Default != nil {
			out[name] = *sub.Default
		}
	}
	return out
}

// number is how a guest sees a configuration value: a number, a boolean as 0 or
// 1, a string as its id; 0 for anything else.
func number(v any) float64 {
	switch v := v.(type) {
	case json.Number:
		f, err := v.Float64()
		if err != nil {
			return 0
		}
		return f
	case float64:
		return v
	case bool:
		if v {
			return 1
		}
	case string:
		return abi.ID(v)
	}
	return 0
}

// lookup follows a JSON pointer.
func lookup(v any, pointer string) any {
	for _, token := range strings.Split(strings.TrimPrefix(pointer, "/"), "/") {
		token = unescapePointer(token)
		switch x := v.(type) {
		case map[string]any:
			v = x[token]
		case []any:
			i, err := strconv.Atoi(token)
			if err != nil || i < 0 || i >= len(x) {
				return nil
			}
			v = x[i]
		default:
			return nil
		}
	}
	return v
}

// replaced is v with the value at the pointer set; containers on the way are
// copied or made.
func replaced(v any, tokens []string, value any) any {
	if len(tokens) == 0 {
		return value
	}
	token := unescapePointer(tokens[0])
	if list, ok := v.([]any); ok {
		i, err := strconv.Atoi(token)
		if err != nil || i < 0 || i >= len(list) {
			return v
		}
		out := append([]any(nil), list...)
		out[i] = replaced(list[i], tokens[1:], value)
		return out
	}
	old, _ := v.(map[string]any)
	out := make(map[string]any, len(old)+1)
	for k, x := range old {
		out[k] = x
	}
	out[token] = replaced(out[token], tokens[1:], value)
	return out
}

func unescapePointer(token string) string {
	return strings.ReplaceAll(strings.ReplaceAll(token, "~1", "/"), "~0", "~")
}

// checkOverrides tells whether one request may set values of the configuration,
// all of them together. known are those that the manifest declares.
func (m *module) checkOverrides(c *configuration, overrides map[string]json.RawMessage) (known []string, err error) {
	value := c.value
	for _, f := range m.manifest.RequestFields {
		pointer, ok := abi.ConfigPointer(f)
		if !ok {
			continue
		}
		name := strings.TrimPrefix(pointer, "/")
		raw, ok := overrides[name]
		if !ok {
			continue
		}
		v, allowed := overrideValue(raw)
		if allowed != "" {
			return nil, &fleet.FieldError{Field: name, Value: clip(string(raw), 80), Allowed: allowed}
		}
		known = append(known, name)
		value = replaced(value, strings.Split(name, "/"), v)
	}
	if m.schema == nil || len(known) == 0 {
		return known, nil
	}
	if err := m.schema.validate(value, maxOverrideSteps); err != nil {
		return nil, refusedOverrides(known, overrides, err)
	}
	return known, nil
}

// overrideValue reads one override; allowed is empty where it is one.
func overrideValue(raw json.RawMessage) (v any, allowed string) {
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return nil, "a JSON value"
	}
	switch v.(type) {
	case json.Number, bool, string:
	default:
		return nil, "a number, a boolean or a string"
	}
	if badNumber(v, "") != "" {
		return nil, numberAllowed
	}
	return v, ""
}

// refusedOverrides names the override that the schema points at, or all of them
// where it refuses them together.
func refusedOverrides(known []string, overrides map[string]json.RawMessage, err error) error {
	names := slices.Sorted(slices.Values(known))
	if place := schemaPlace(err); slices.Contains(names, place) {
		names = []string{place}
	}
	values := make([]string, len(names))
	for i, name := range names {
		values[i] = clip(string(overrides[name]), 80)
	}
	return &fleet.FieldError{Field: strings.Join(names, ", "), Value: clip(strings.Join(values, ", "), 200), Allowed: clip(schemaMessage(err), 200)}
}

// overridden reads a request's value of a configuration field; ok is false when
// the request does not set it.
func overridden(overrides map[string]json.RawMessage, field string) (v float64, ok bool) {
	raw, ok := overrides[strings.TrimPrefix(field, abi.ConfigPrefix)]
	if !ok {
		return 0, false
	}
	x, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil || badNumber(x, "") != "" {
		return 0, false
	}
	return number(x), true
}

func sortedList(items []string) string {
	sort.Strings(items)
	return strings.Join(items, "; ")
}
