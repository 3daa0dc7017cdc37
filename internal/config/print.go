package config

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"

	"github.com/routerd/routerd/catalog/dns"
	"github.com/routerd/routerd/fleet"
)

// YAML writes the effective configuration in the form of a file, with the
// source of each value that is not a default as a comment at its line. It
// holds no secret: credentials live in files that the configuration names.
func (l *Loaded) YAML() ([]byte, error) {
	comments := yaml.CommentMap{}
	root := schema()
	root.scalars(func(path []string, _ *node) {
		if s, ok := l.sources[strings.Join(path, sep)]; ok {
			comments["$."+dotted(path)] = []*yaml.Comment{yaml.LineComment(" " + s)}
		}
	})
	tree, err := plain(root, reflect.ValueOf(l.Config))
	if err != nil {
		return nil, err
	}
	b, err := yaml.MarshalWithOptions(tree, yaml.WithComment(comments))
	if err != nil {
		return nil, fmt.Errorf("write configuration: %w", err)
	}
	return b, nil
}

// plain turns typed values back into the maps, lists and scalars of a file.
// Keys of a worker and of a name of workers.dns that hold nothing are left out.
func plain(n *node, v reflect.Value) (any, error) {
	switch n.kind {
	case section:
		m := yaml.MapSlice{}
		for i, key := range n.order {
			if (n.typ == reflect.TypeFor[fleet.Record]() || n.typ == reflect.TypeFor[dns.Config]()) && v.Field(i).IsZero() {
				continue
			}
			child, err := plain(n.children[key], v.Field(i))
			if err != nil {
				return nil, err
			}
			m = append(m, yaml.MapItem{Key: key, Value: child})
		}
		return m, nil
	case freeMap:
		m := yaml.MapSlice{}
		ks := v.MapKeys()
		slices.SortFunc(ks, func(a, b reflect.Value) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
		for _, k := range ks {
			child, err := plain(n.element, v.MapIndex(k))
			if err != nil {
				return nil, err
			}
			m = append(m, yaml.MapItem{Key: fmt.Sprint(k), Value: child})
		}
		return m, nil
	case list:
		out := []any{}
		for i := range v.Len() {
			child, err := plain(n.element, v.Index(i))
			if err != nil {
				return nil, err
			}
			out = append(out, child)
		}
		return out, nil
	case opaque:
		return viaJSON(v.Interface())
	default:
		if l, ok := v.Interface().(Limit); ok && l >= 0 {
			return int64(l), nil
		}
		if v.Kind() == reflect.Float64 {
			return number(v.Float()), nil
		}
		if s, ok := v.Interface().(fmt.Stringer); ok && n.typ.Kind() == reflect.Int64 {
			return s.String(), nil
		}
		return v.Interface(), nil
	}
}

// inFile is a value as it can stand in a file, on one line; texts are bare.
func inFile(n *node, v reflect.Value) string {
	tree, err := plain(n, v)
	if err == nil && n.kind != leaf {
		var b []byte
		if b, err = yaml.MarshalWithOptions(tree, yaml.Flow(true)); err == nil {
			return strings.TrimSpace(string(b))
		}
	}
	return fmt.Sprint(v.Interface())
}

// number is written without exponent, as the check reads it.
type number float64

// MarshalYAML writes the number.
func (n number) MarshalYAML() ([]byte, error) { return []byte(decimalText(float64(n))), nil }

func viaJSON(v any) (any, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode policy: %w", err)
	}
	var out any
	if err := json.Unmarshal(b, &out); err != nil {
		return nil, fmt.Errorf("decode policy: %w", err)
	}
	return out, nil
}
