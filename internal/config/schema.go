package config

import (
	"reflect"
	"strings"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/fleet"
)

// node is what is known of one place in the configuration.
type node struct {
	kind     nodeKind
	children map[string]*node // of a section
	order    []string         // the section's keys in the order of the struct
	element  *node            // of a list, or of a map with free keys
	typ      reflect.Type     // of a leaf
	tag      reflect.StructTag
}

type nodeKind uint8

const (
	section nodeKind = iota // fixed keys
	freeMap                 // any key
	list                    // a sequence
	leaf                    // one value
	opaque                  // checked by its own parser
)

// schema derives the tree of known keys from the Config struct.
func schema() *node { return nodeOf(reflect.TypeFor[Config](), "") }

func nodeOf(t reflect.Type, tag reflect.StructTag) *node {
	n := &node{typ: t, tag: tag}
	switch {
	case t == reflect.TypeFor[policy.Spec]():
		n.kind = opaque
	case t == reflect.TypeFor[fleet.WorkerID]():
		n.kind = leaf
	case t.Kind() == reflect.Struct:
		n.kind = section
		n.children = make(map[string]*node, t.NumField())
		for f := range t.Fields() {
			key := f.Tag.Get("koanf")
			if key == "-" {
				continue
			}
			n.children[key] = nodeOf(f.Type, f.Tag)
			n.order = append(n.order, key)
		}
	case t.Kind() == reflect.Map:
		n.kind, n.element = freeMap, nodeOf(t.Elem(), "")
	case t.Kind() == reflect.Slice:
		n.kind, n.element = list, nodeOf(t.Elem(), "")
	default:
		n.kind = leaf
	}
	return n
}

// scalars visits every leaf that has a fixed path, in the order of the struct.
func (n *node) scalars(visit func(path []string, leaf *node)) {
	n.walkScalars(nil, visit)
}

func (n *node) walkScalars(path []string, visit func([]string, *node)) {
	switch n.kind {
	case leaf:
		visit(path, n)
	case section:
		for _, key := range n.order {
			n.children[key].walkScalars(below(path, key), visit)
		}
	case freeMap, list, opaque:
	}
}

// nearest is the known word with the smallest edit distance to word, "" for
// none within half its length.
func nearest(word string, known []string) string {
	best, limit := "", len(word)/2+1
	for _, k := range known {
		if d := editDistance(strings.ToLower(word), strings.ToLower(k)); d < limit {
			best, limit = k, d
		}
	}
	return best
}

// editDistance is Levenshtein's.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], cost
		}
	}
	return row[len(b)]
}
