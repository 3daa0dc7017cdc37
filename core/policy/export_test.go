package policy

import (
	"encoding/json"
	"math"
	"strconv"
)

// Setting is a number of a built-in stage's configuration, as its page has it.
type Setting struct {
	Name    string
	Default float64
	Allowed string
}

// SettingsOf are the settings of a built-in stage; none where it has no
// configuration.
func SettingsOf(stage Stage) (list []Setting) {
	switch s := stage.(type) {
	case *kvAware:
		for _, name := range kvAwareNames {
			v, allowed := s.weights.field(name)
			list = append(list, Setting{name, *v, allowed})
		}
	case softmax:
		list = append(list, Setting{temperatureName, s.temperature, temperatureAllowed})
	case interface{ every() settings }:
		for _, st := range s.every() {
			list = append(list, Setting{st.name, st.unless, st.allowed()})
		}
	}
	return list
}

func (c *configured) every() settings { return c.settings }

// StagesOf are the stages of a pipeline, in order.
func StagesOf(p *Pipeline) (stages []Stage) {
	for _, s := range p.stages {
		stages = append(stages, s.stage)
	}
	return stages
}

// Extremes are JSON numbers at and beyond the ends of what each setting of a
// stage takes.
func Extremes(stage Stage) (allowed, refused []map[string]json.RawMessage) {
	s, ok := stage.(interface{ every() settings })
	if !ok {
		return nil, nil
	}
	put := func(list *[]map[string]json.RawMessage, name string, v float64) {
		raw, err := json.Marshal(v)
		if err == nil {
			*list = append(*list, map[string]json.RawMessage{name: raw})
		}
	}
	for _, st := range s.every() {
		put(&allowed, st.name, st.low)
		put(&allowed, st.name, st.high)
		put(&refused, st.name, math.Nextafter(st.low, math.Inf(-1)))
		if st.high < math.MaxFloat64 {
			put(&refused, st.name, math.Nextafter(st.high, math.Inf(1)))
		}
		if st.whole {
			put(&refused, st.name, st.low+0.5)
		}
	}
	return allowed, refused
}

// Text is the default as a page has it.
func (s Setting) Text() string { return strconv.FormatFloat(s.Default, 'g', -1, 64) }
