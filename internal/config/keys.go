package config

import (
	"bytes"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml/ast"

	"github.com/routerd/routerd/fleet"
)

// textProblem says why bytes are not the text of a configuration file, "" for
// text. YAML also knows UTF-16, but half of its readers do not.
func textProblem(text []byte) string {
	if bytes.IndexByte(text, 0) >= 0 || !utf8.Valid(text) {
		return "the file is not UTF-8 text; allowed: UTF-8 without NUL characters"
	}
	return ""
}

// onlyMarks tells whether text has nothing but comments and marks of documents.
func onlyMarks(text []byte) bool {
	for line := range bytes.Lines(text) {
		line, _, _ = bytes.Cut(line, []byte("#"))
		if line = bytes.TrimSpace(line); len(line) > 0 && string(line) != "---" && string(line) != "..." {
			return false
		}
	}
	return true
}

// key checks the form of a key in the file and returns its text.
func (s *fileScan) key(path []string, n ast.MapKeyNode, known *node) (string, bool) {
	pos := s.source(place(n.GetToken()))
	text := n.GetToken().Value
	switch n.(type) {
	case *ast.MergeKeyNode:
		s.problems = append(s.problems, Problem{Source: pos, Key: dotted(below(path, text)), Reason: "merge keys are not allowed"})
		return "", false
	case *ast.StringNode, *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.NullNode, *ast.InfinityNode, *ast.NanNode:
	default:
		s.problems = append(s.problems, badValue(pos, dottedOr(path), text, "a key that is plain or quoted text, without tag, anchor or '?'"))
		return "", false
	}
	if ranks(known) {
		if r, err := strconv.ParseUint(text, 10, 64); err != nil || r >= fleet.MaxRanks || strconv.FormatUint(r, 10) != text {
			s.problems = append(s.problems, badValue(pos, dottedOr(path), text, fmt.Sprintf("ranks from 0 to %d without leading zeros as keys", fleet.MaxRanks-1)))
			return "", false
		}
	}
	return text, true
}

// ranks tells whether a mapping has numbers as keys.
func ranks(n *node) bool {
	return n != nil && n.kind == freeMap && n.typ.Key().Kind() == reflect.Int
}

// keys checks the keys of parsed YAML as the parser resolved them: two that are
// written differently may be one, as 16 and 0x10 are.
func (c *checker) keys(path []string, v any, n *node) {
	switch v := v.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			c.keyed(path, key, v[key], n)
		}
	case map[any]any:
		inOrder := func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) }
		for _, key := range slices.SortedFunc(maps.Keys(v), inOrder) {
			if _, ok := key.(string); !ok && !ranks(n) {
				c.refuseKey(path, fmt.Sprint(key), "text as keys (quote numbers, dates, null, true and false)")
				continue
			}
			c.keyed(path, fmt.Sprint(key), v[key], n)
		}
	case []any:
		for i, e := range v {
			c.keys(below(path, strconv.Itoa(i)), e, elementOf(n))
		}
	}
}

func (c *checker) keyed(path []string, key string, value any, n *node) {
	if strings.ContainsFunc(key, func(r rune) bool { return r < 0x20 || r == 0x7f || r == utf8.RuneError }) {
		c.refuseKey(path, key, "keys of printable text")
		return
	}
	if n != nil && n.kind == freeMap && (key == "" || len(key) > fleet.MaxNameBytes) {
		c.refuseKey(path, key, "keys of 1 to 256 bytes")
		return
	}
	child, _ := childOf(n, key)
	c.keys(below(path, key), value, child)
}

func (c *checker) refuseKey(path []string, key, allowed string) {
	c.problems = append(c.problems, badValue(c.origin(below(path, key)), dottedOr(path), key, allowed))
}

// dottedOr is the dotted path of a mapping, also of the outermost.
func dottedOr(path []string) string {
	if len(path) == 0 {
		return "configuration"
	}
	return dotted(path)
}
