package config

import (
	"slices"
	"strings"
)

// anyElement stands for the elements of a list in the reference.
const anyElement = "[]"

// dotted is a path as it is written in errors, in answers and in the reference:
// routing.rules[0].policy.
func dotted(path []string) string {
	if !slices.ContainsFunc(path, numeric) {
		return strings.Join(path, ".")
	}
	var b strings.Builder
	n := schema()
	for i, key := range path {
		if numeric(key) && n != nil && (n.kind == list || n.kind == opaque) {
			b.WriteString("[" + strings.Trim(key, anyElement) + "]")
		} else {
			if i > 0 {
				b.WriteByte('.')
			}
			b.WriteString(key)
		}
		n = inside(n, key)
	}
	return b.String()
}

// numeric tells whether a part of a path may be the place of an element.
func numeric(key string) bool {
	return key == anyElement || key != "" && strings.Trim(key, "0123456789") == ""
}

// inside is what is known of something inside n: of a policy, that all of it is
// the policy's; nil for nothing.
func inside(n *node, key string) *node {
	switch {
	case n == nil || n.kind == opaque:
		return n
	case n.kind == list:
		return n.element
	}
	child, _ := childOf(n, key)
	return child
}
