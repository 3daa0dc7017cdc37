package config

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/routerd/routerd/catalog/dns"
)

//go:generate go test . -run TestTheReferenceIsFresh -update

// Reference writes docs/reference/config.md: every key with its type, default,
// range and meaning, in the order of the file.
func Reference() string {
	var b strings.Builder
	b.WriteString("# Configuration\n\nGenerated from `internal/config`; change it there.\n\n" +
		"Order: defaults, the file, environment, flags; the later wins. A key `a.b` is `ROUTERD_A__B` in the environment and `--a.b` as a flag. " +
		"Lists and mappings, and the keys below their [] or NAME, are set in the file only: they have no variable and no flag. Variables that Kubernetes makes of a service named routerd (`ROUTERD_SERVICE_HOST`, `ROUTERD_PORT_…`) are no keys. Reload: `live` keys are in force when a reload has answered, a change of a `restart` key refuses the reload as a whole.\n\n" +
		"| key | type | default | allowed | reload | meaning |\n|---|---|---|---|---|---|\n")
	reference(&b, nil, schema(), reflect.ValueOf(DefaultConfig()), "")
	return b.String()
}

func reference(b *strings.Builder, path []string, n *node, v reflect.Value, reload string) {
	reload = cmp.Or(n.tag.Get("reload"), reload)
	switch n.kind {
	case section:
		for i, key := range n.order {
			if slices.Contains(strings.Fields(n.tag.Get("without")), key) {
				continue
			}
			reference(b, below(path, key), n.children[key], v.Field(i), reload)
		}
	case freeMap, list:
		name := anyElement
		if n.kind == freeMap {
			name = "NAME"
		}
		row(b, path, n, map[nodeKind]string{freeMap: "mapping", list: "list"}[n.kind], "", reload, n.tag.Get("doc"))
		if n.element.kind != leaf {
			reference(b, below(path, name), n.element, elementDefault(n.element.typ), reload)
		}
	case opaque:
		row(b, path, n, "policy", "", reload, "See docs/reference/admin-api.md, policies.")
	case leaf:
		row(b, path, n, typeName(n.typ), defaultText(path, v), reload, n.tag.Get("doc"))
	}
}

// elementDefault is what an element of a list or a mapping has without any keys.
func elementDefault(t reflect.Type) reflect.Value {
	switch t {
	case reflect.TypeFor[Model]():
		return reflect.ValueOf(DefaultModel())
	case reflect.TypeFor[QueueClass]():
		return reflect.ValueOf(DefaultQueueClass())
	case reflect.TypeFor[dns.Config]():
		return reflect.ValueOf(dns.DefaultConfig())
	}
	return reflect.New(t).Elem()
}

func row(b *strings.Builder, path []string, n *node, typ, def, reload, doc string) {
	fmt.Fprintf(b, "| `%s` | %s | %s | %s | %s | %s |\n", dotted(path), typ, def, allowedText(n.tag), reload, doc)
}

func typeName(t reflect.Type) string {
	switch t {
	case reflect.TypeFor[Duration](), reflect.TypeFor[time.Duration]():
		return "duration"
	case reflect.TypeFor[Bytes]():
		return "size"
	case reflect.TypeFor[Limit]():
		return "number or `unlimited`"
	}
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "text"
	default:
		return "number"
	}
}

func defaultText(path []string, v reflect.Value) string {
	if dotted(path) == "data_dir" {
		return "`$XDG_STATE_HOME/routerd`, else `~/.local/state/routerd`"
	}
	if v.IsZero() && v.Kind() == reflect.String {
		return ""
	}
	if d, ok := v.Interface().(time.Duration); ok {
		return "`" + Duration(d).String() + "`"
	}
	return fmt.Sprintf("`%v`", v.Interface())
}

func allowedText(tag reflect.StructTag) string {
	if one := tag.Get("oneof"); one != "" {
		return strings.Join(strings.Fields(one), ", ")
	}
	low, up := tag.Get("min"), tag.Get("max")
	if low == "" && up == "" {
		return ""
	}
	if low == "" {
		low = "0"
	}
	text := low + " to " + up
	switch off := tag.Get("off"); off {
	case "":
	case "true":
		text += ", 0s is off"
	default:
		text += ", " + off + " is off"
	}
	return text
}
