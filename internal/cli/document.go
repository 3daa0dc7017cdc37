package cli

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// document reads a file as JSON. What begins with a brace is sent as it is, so
// that the router judges it; all else is YAML, where a repeated key is refused.
func (c *call) document(name string) ([]byte, error) {
	text, err := c.read(name)
	if err != nil {
		return nil, err
	}
	if bytes.HasPrefix(bytes.TrimLeft(text, " \t\r\n"), []byte("{")) {
		return text, nil
	}
	if name == "-" {
		name = "standard input"
	}
	if err := oneDocument(name, text); err != nil {
		return nil, err
	}
	out, err := yaml.YAMLToJSON(text)
	if err != nil {
		return nil, badYAML(name, err)
	}
	return out, nil
}

// badYAML says why a file cannot be read in one line: the error's own text draws
// the place over several.
func badYAML(name string, err error) error {
	return fmt.Errorf("read %s as YAML: %s", name, strings.TrimSpace(yaml.FormatError(err, false, false)))
}

// oneDocument refuses what JSON cannot say: several documents, of which only the
// first would be read, and numbers that are none.
func oneDocument(name string, text []byte) error {
	file, err := parser.ParseBytes(text, 0)
	if err != nil {
		return badYAML(name, err)
	}
	documents := 0
	var odd notNumbers
	for _, d := range file.Docs {
		if d.Body == nil {
			continue
		}
		documents++
		ast.Walk(&odd, d.Body)
	}
	if documents > 1 {
		return usage("%s has %d documents; allowed: one", name, documents)
	}
	if len(odd) > 0 {
		return usage("%s: %s: %s is not allowed; allowed: a finite number", name, strings.TrimPrefix(odd[0].GetPath(), "$."), odd[0].GetToken().Value)
	}
	return nil
}

// notNumbers are the values .nan and .inf.
type notNumbers []ast.Node

// Visit looks at one node of a document.
func (n *notNumbers) Visit(node ast.Node) ast.Visitor {
	switch node.Type() {
	case ast.NanType, ast.InfinityType:
		*n = append(*n, node)
	default:
	}
	return n
}
