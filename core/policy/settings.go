package policy

import (
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/routerd/routerd/fleet"
)

// setting is one number of a built-in stage's configuration. A request may
// override it by its name.
type setting struct {
	name      string
	unless    float64 // where nothing is said
	low, high float64
	whole     bool // takes no fraction
}

// allowed says what the setting takes.
func (s *setting) allowed() string {
	kind := "a number"
	if s.whole {
		kind = "a whole number"
	}
	low := strconv.FormatFloat(s.low, 'g', -1, 64)
	if s.high == math.MaxFloat64 {
		return "a finite number, at least " + low
	}
	return kind + " from " + low + " to " + strconv.FormatFloat(s.high, 'f', -1, 64)
}

func (s *setting) number(raw json.RawMessage) (float64, error) {
	v, err := numberIn(s.name, raw, s.low, s.high, s.allowed())
	if err == nil && s.whole && v != math.Trunc(v) {
		return 0, &fleet.FieldError{Field: s.name, Value: string(raw), Allowed: s.allowed()}
	}
	return v, err
}

// settings are all numbers that a built-in stage can be told.
type settings []setting

// maxSettings bounds the settings of one stage.
const maxSettings = 5

// numbers are a configuration, by place in its settings.
type numbers [maxSettings]float64

func (s settings) names() []string {
	names := make([]string, len(s))
	for i := range s {
		names[i] = s[i].name
	}
	return names
}

// configured is the part that built-in stages with settings share.
type configured struct {
	settings settings
	numbers  numbers
}

// configure reads a stage's configuration; nil and what it does not name mean
// the defaults.
func configure(s settings, config json.RawMessage) (configured, error) {
	c := configured{settings: s}
	for i := range s {
		c.numbers[i] = s[i].unless
	}
	if len(config) == 0 {
		return c, nil
	}
	values, err := objectOf("config", config)
	if err != nil {
		return c, err
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		i := slices.IndexFunc(s, func(known setting) bool { return known.name == name })
		if i < 0 {
			return c, &fleet.FieldError{Field: "config", Value: name, Allowed: strings.Join(s.names(), ", ")}
		}
		if c.numbers[i], err = s[i].number(values[name]); err != nil {
			return c, err
		}
	}
	return c, nil
}

// asked is the configuration after the request's overrides.
func (c *configured) asked(t *Table) numbers {
	n := c.numbers
	if len(t.Overrides) == 0 {
		return n
	}
	for i := range c.settings {
		if raw, ok := t.Overrides[c.settings[i].name]; ok {
			// Checked before the decision.
			if v, err := c.settings[i].number(raw); err == nil {
				n[i] = v
			}
		}
	}
	return n
}

func (c *configured) CheckOverrides(overrides map[string]json.RawMessage) (known []string, err error) {
	for i := range c.settings {
		name := c.settings[i].name
		raw, ok := overrides[name]
		if !ok {
			continue
		}
		if _, err := c.settings[i].number(raw); err != nil {
			return nil, err
		}
		known = append(known, name)
	}
	return known, nil
}

func (*configured) Close() error { return nil }
