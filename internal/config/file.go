package config

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
	koanfyaml "github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/providers/confmap"
)

// sep separates the levels of a path inside the package: it occurs in no key.
// Model names hold dots.
const sep = "\x1f"

// fileFlag refuses an empty name, which an unset variable of a script gives: the
// router would start with the defaults.
func (l *loader) fileFlag(in Input) {
	if in.Flags == nil || in.File != "" {
		return
	}
	if f := in.Flags.Lookup(FileFlag); f != nil && f.Changed {
		l.problems = append(l.problems, badValue("--"+FileFlag, FileFlag, "", "the path of a file; none without the flag"))
	}
}

func (l *loader) file(name string) error {
	if name == "" {
		return nil
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return fmt.Errorf("read configuration: %w", err)
	}
	l.text(filepath.Base(name), bytes.TrimPrefix(text, []byte("\ufeff")))
	return nil
}

// text loads the file's text.
func (l *loader) text(name string, text []byte) {
	wrong := func(reason string) {
		l.problems = append(l.problems, Problem{Source: name, Key: "YAML", Reason: reason})
	}
	if reason := textProblem(text); reason != "" {
		wrong(reason)
		return
	}
	found, problems := scanFile(name, text, l.root)
	l.problems = append(l.problems, problems...)
	for path, pos := range found.at {
		l.sources[path] = name + ":" + pos
	}
	l.literals = found.literals
	if len(problems) > 0 {
		return
	}
	raw, err := koanfyaml.Parser().Unmarshal(text)
	if err != nil {
		wrong(err.Error())
		return
	}
	c := checker{origin: l.origin}
	c.keys(nil, raw, l.root)
	if len(c.problems) > 0 {
		l.problems = append(l.problems, c.problems...)
		return
	}
	if err := l.k.Load(confmap.Provider(raw, ""), nil); err != nil {
		wrong(err.Error())
	}
}

// scanned is what the text of a file tells that the parsed values do not.
type scanned struct {
	at       map[string]string // path of every key and element → "line:col"
	literals map[string]string // path of every scalar → as it is written, without quotes
}

// scanFile parses YAML for positions: where each key stands, which keys no one
// knows, and what is not YAML at all.
func scanFile(name string, text []byte, root *node) (scanned, []Problem) {
	found := scanned{at: map[string]string{}, literals: map[string]string{}}
	if len(bytes.TrimSpace(text)) == 0 {
		return found, nil
	}
	f, err := parser.ParseBytes(text, 0)
	if err != nil {
		return found, []Problem{{Source: name, Key: "YAML", Reason: yaml.FormatError(err, false, true)}}
	}
	for _, d := range f.Docs {
		if dir, ok := d.Body.(*ast.DirectiveNode); ok {
			return found, []Problem{{Source: name + ":" + place(dir.GetToken()), Key: "YAML", Reason: "directives such as %YAML are not allowed"}}
		}
	}
	if len(f.Docs) > 1 {
		return found, []Problem{{Source: name, Key: "YAML", Reason: fmt.Sprintf("%d documents in one file; allowed: 1", len(f.Docs))}}
	}
	s := fileScan{name: name, scanned: found}
	body := f.Docs[0].Body
	if body == nil && !onlyMarks(text) {
		return found, []Problem{{Source: name, Key: "YAML", Reason: "several documents in one file; allowed: 1"}}
	}
	if body != nil {
		s.node(nil, body, root)
	}
	return found, s.problems
}

type fileScan struct {
	scanned
	name     string
	problems []Problem
}

func (s *fileScan) source(pos string) string { return s.name + ":" + pos }

func (s *fileScan) node(path []string, n ast.Node, known *node) {
	switch v := n.(type) {
	case *ast.MappingNode:
		s.mapping(path, v.Values, known)
	case *ast.MappingValueNode:
		s.mapping(path, []*ast.MappingValueNode{v}, known)
	case *ast.SequenceNode:
		for i, e := range v.Values {
			p := below(path, strconv.Itoa(i))
			s.at[strings.Join(p, sep)] = place(e.GetToken())
			s.node(p, e, elementOf(known))
		}
	case *ast.AnchorNode:
		s.node(path, v.Value, known)
	case *ast.TagNode:
		s.node(path, v.Value, known)
	case *ast.AliasNode:
		s.problems = append(s.problems, Problem{Source: s.source(place(v.GetToken())), Key: dotted(path), Reason: "aliases are not allowed"})
	case *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode, *ast.StringNode:
		s.literals[strings.Join(path, sep)] = n.GetToken().Value
	}
}

func (s *fileScan) mapping(path []string, values []*ast.MappingValueNode, known *node) {
	for _, mv := range values {
		key, ok := s.key(path, mv.Key, known)
		if !ok {
			continue
		}
		p := below(path, key)
		pos := place(mv.Key.GetToken())
		s.at[strings.Join(p, sep)] = pos
		child, ok := childOf(known, key)
		if !ok {
			near := nearest(key, slices.Sorted(maps.Keys(known.children)))
			if near != "" {
				near = dotted(below(path, near))
			}
			s.problems = append(s.problems, unknownKey(s.source(pos), dotted(p), near))
			continue
		}
		s.node(p, mv.Value, child)
	}
}

func childOf(n *node, key string) (*node, bool) {
	if n == nil || n.kind == opaque || n.kind == leaf || n.kind == list {
		return nil, true // the value check refuses what does not fit
	}
	if n.kind == freeMap {
		return n.element, true
	}
	c, ok := n.children[key]
	return c, ok
}

func elementOf(n *node) *node {
	if n == nil {
		return nil
	}
	return n.element
}

// below is the path of something below path.
func below(path []string, key string) []string { return append(slices.Clip(path), key) }

func place(t *token.Token) string {
	return fmt.Sprintf("%d:%d", t.Position.Line, t.Position.Column)
}
