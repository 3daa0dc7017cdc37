package config

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/fleet"
)

// checker walks merged raw values beside the schema and collects what does not
// fit.
type checker struct {
	origin   func(path []string) string
	literals map[string]string // path → how the file writes the value
	problems []Problem
}

func (c *checker) refuse(path []string, value any, allowed string) {
	c.problems = append(c.problems, badValue(c.origin(path), dotted(path), fmt.Sprint(value), allowed))
}

func (c *checker) value(path []string, v any, n *node) {
	if n == nil {
		return
	}
	switch n.kind {
	case section, freeMap:
		m, ok := v.(map[string]any)
		if !ok {
			if v != nil || len(path) > 1 {
				c.refuse(path, v, "a mapping")
			}
			return
		}
		for _, key := range slices.Sorted(maps.Keys(m)) {
			if child, ok := childOf(n, key); ok { // unknown keys are reported where they stand
				c.value(below(path, key), m[key], child)
			}
		}
	case list:
		l, ok := v.([]any)
		if !ok {
			if v != nil {
				c.refuse(path, v, "a list")
			}
			return
		}
		for i, e := range l {
			c.value(below(path, strconv.Itoa(i)), e, n.element)
		}
	case leaf:
		c.leaf(path, v, n)
	case opaque:
		c.spec(path, v)
	}
}

func (c *checker) leaf(path []string, v any, n *node) {
	switch n.typ {
	case reflect.TypeFor[Duration](), reflect.TypeFor[time.Duration]():
		c.duration(path, v, n)
		return
	case reflect.TypeFor[Bytes]():
		c.bytes(path, v, n)
		return
	case reflect.TypeFor[Limit]():
		c.limit(path, v)
		return
	case reflect.TypeFor[fleet.WorkerID]():
		text, plain := c.written(path, v)
		if id, err := fleet.ParseWorkerID(text); err != nil || !plain || id.String() != text {
			c.refuse(path, text, "a number from 0 to 18446744073709551615")
		}
		return
	}
	switch n.typ.Kind() {
	case reflect.Bool:
		if _, ok := v.(bool); !ok {
			c.refuse(path, v, "true or false")
		}
	case reflect.Int, reflect.Int64:
		c.integer(path, v, n)
	case reflect.Uint64:
		c.unsigned(path, v, n)
	case reflect.Float64:
		c.number(path, v, n)
	default:
		c.text(path, v, n)
	}
}

func (c *checker) text(path []string, v any, n *node) {
	s, ok := v.(string)
	if !ok {
		c.refuse(path, v, "text (quote numbers and true or false)")
		return
	}
	if one := n.tag.Get("oneof"); one != "" && !slices.Contains(strings.Fields(one), s) {
		c.refuse(path, v, strings.Join(strings.Fields(one), ", "))
	}
}

// written is how a value is written, and whether a number is written as
// YAML writes it back: 010, 1e0 and 0x8 are not, which readers of YAML take for
// different numbers.
func (c *checker) written(path []string, v any) (text string, plain bool) {
	text = fmt.Sprint(v)
	if _, ok := v.(string); ok {
		return text, true
	}
	if literal, ok := c.literals[strings.Join(path, sep)]; ok {
		return literal, literal == text
	}
	return text, true
}

func (c *checker) integer(path []string, v any, n *node) {
	low, up := int64(0), int64(1)<<40
	if t := n.tag.Get("min"); t != "" {
		low, _ = strconv.ParseInt(t, 10, 64)
	}
	if t := n.tag.Get("max"); t != "" {
		up, _ = strconv.ParseInt(t, 10, 64)
	}
	text, plain := c.written(path, v)
	i, err := strconv.ParseInt(text, 10, 64)
	if _, quoted := v.(string); err != nil || !plain || quoted || i < low || i > up {
		c.refuse(path, text, fmt.Sprintf("a whole number from %d to %d", low, up))
	}
}

func (c *checker) unsigned(path []string, v any, n *node) {
	low, up := uint64(0), ^uint64(0)
	if t := n.tag.Get("min"); t != "" {
		low, _ = strconv.ParseUint(t, 10, 64)
	}
	if t := n.tag.Get("max"); t != "" {
		up, _ = strconv.ParseUint(t, 10, 64)
	}
	text, plain := c.written(path, v)
	u, err := strconv.ParseUint(text, 10, 64)
	if _, quoted := v.(string); err != nil || !plain || quoted || u < low || u > up {
		c.refuse(path, text, fmt.Sprintf("a whole number from %d to %d", low, up))
	}
}

// decimal is the form of a number that is not whole: readers of YAML take others,
// such as 1e3, .5 or 1_000, for different things.
var decimal = regexp.MustCompile(`^(0|[1-9][0-9]*)(\.[0-9]+)?$`)

func (c *checker) number(path []string, v any, n *node) {
	low, _ := strconv.ParseFloat(n.tag.Get("min"), 64)
	up, _ := strconv.ParseFloat(n.tag.Get("max"), 64)
	text := fmt.Sprint(v)
	if f, ok := v.(float64); ok {
		text = decimalText(f)
	}
	if written, ok := c.literals[strings.Join(path, sep)]; ok {
		text = written
	}
	f, err := strconv.ParseFloat(text, 64)
	if _, quoted := v.(string); err != nil || quoted || !decimal.MatchString(text) || f < low || f > up {
		c.refuse(path, text, fmt.Sprintf("a decimal number from %s to %s", n.tag.Get("min"), n.tag.Get("max")))
	}
}

// decimalText writes a number without exponent.
func decimalText(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }

func (c *checker) limit(path []string, v any) {
	text, plain := c.written(path, v)
	l, err := ParseLimit(text)
	if _, quoted := v.(string); err != nil || !plain || quoted && l != Unlimited {
		c.refuse(path, text, errLimit.Error())
	}
}

func (c *checker) duration(path []string, v any, n *node) {
	low, _ := ParseDuration(n.tag.Get("min"))
	up, _ := ParseDuration(n.tag.Get("max"))
	off := n.tag.Get("off") == "true"
	allowed := errDuration.Error() + ", " + cmp.Or(n.tag.Get("min"), "0s") + " to " + n.tag.Get("max")
	if off {
		allowed += ", or 0s for off"
	}
	s, ok := v.(string)
	d, err := ParseDuration(s)
	if !ok || err != nil || d > up || (d < low && (d != 0 || !off)) || (d == 0 && !off) {
		c.refuse(path, v, allowed)
	}
}

func (c *checker) bytes(path []string, v any, n *node) {
	low, _ := ParseBytes(n.tag.Get("min"))
	up, _ := ParseBytes(n.tag.Get("max"))
	allowed := errBytes.Error() + ", " + low.String() + " to " + up.String()
	off := n.tag.Get("off") != ""
	if off {
		allowed += ", or 0 for off"
	}
	text, plain := c.written(path, v)
	b, err := ParseBytes(text)
	if err != nil || !plain || b > up || b < low && (b != 0 || !off) {
		c.refuse(path, text, allowed)
	}
}

// policyName is the form of names in the policy API.
var policyName = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{1,62}$`)

// spec checks a policy's name, and the policy with the policy API's own parser.
func (c *checker) spec(path []string, v any) {
	if name := path[len(path)-1]; !policyName.MatchString(name) {
		c.problems = append(c.problems, badValue(c.origin(path), dotted(path[:len(path)-1]), name,
			"names of 2 to 63 lower-case letters, digits, '-' and '.', a letter or digit first"))
	}
	c.numbers(path, v)
	spec, err := parseSpec(v)
	for _, sc := range spec.Scorers {
		if err == nil && strings.HasPrefix(sc.Use, "builtin:") {
			_, err = policy.Builtin(sc.Use, sc.Config)
		}
	}
	if err == nil {
		_, err = policy.Builtin(spec.Fallback, nil)
	}
	if err != nil {
		c.problems = append(c.problems, Problem{Source: c.origin(path), Key: dotted(path), Reason: err.Error()})
	}
}

// numbers refuses whole numbers inside a policy that are written in another way
// than they are used.
func (c *checker) numbers(path []string, v any) {
	switch v := v.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			c.numbers(below(path, key), v[key])
		}
	case []any:
		for i, e := range v {
			c.numbers(below(path, strconv.Itoa(i)), e)
		}
	case int, int64, uint64:
		if text, plain := c.written(path, v); !plain {
			c.refuse(path, text, "a decimal number without leading zeros")
		}
	}
}

func parseSpec(v any) (policy.Spec, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return policy.Spec{}, fmt.Errorf("encode policy: %w", err)
	}
	return policy.ParseSpec(b)
}
