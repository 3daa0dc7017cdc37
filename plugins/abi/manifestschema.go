package abi

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// schemaDialect is the only $schema that a config_schema may name: another one
// would have to be fetched.
const schemaDialect = "https://json-schema.org/draft/2020-12/schema"

// schema keeps config_schema raw after checking what must hold before any
// schema library sees it: its size, and that it leads nowhere outside itself.
func (p *parser) schema(doc *value, m *Manifest) {
	v := doc.member("config_schema")
	if v == nil {
		return
	}
	if v.kind != '{' && v.kind != 'b' {
		p.refuse("config_schema", v.show(), "a JSON Schema: an object, true or false")
		return
	}
	if n := v.nodes(); n > MaxSchemaNodes {
		p.refuse("config_schema", fmt.Sprintf("%d values", n), fmt.Sprintf("up to %d values", MaxSchemaNodes))
		return
	}
	p.references(v, "config_schema")
	m.ConfigSchema = slices.Clone(v.raw)
}

func (p *parser) references(v *value, path string) {
	for _, m := range v.members {
		at := join(path, m.key)
		switch m.key {
		case "$ref", "$dynamicRef":
			if m.val.kind == '"' && !strings.HasPrefix(m.val.text, "#") {
				p.refuse(at, m.val.text, "a reference inside the document: #, #/… or #anchor")
			}
		case "$schema":
			if m.val.kind == '"' && strings.TrimSuffix(m.val.text, "#") != schemaDialect {
				p.refuse(at, m.val.text, schemaDialect)
			}
		}
		p.references(m.val, at)
	}
	for i, item := range v.items {
		p.references(item, path+"["+strconv.Itoa(i)+"]")
	}
}
