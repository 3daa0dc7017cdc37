package meter

import (
	"fmt"
	"strings"
)

func (d *decoder) exportSection(r *reader) {
	n := r.count(d.lim.Exports, "exports")
	seen := make(map[string]bool, n)
	for range n {
		e := Export{Name: r.text(d.lim.NameBytes, "export name"), Kind: Kind(r.byte("export kind"))}
		e.Index = r.index(d.exportable(r, e.Kind), "export index")
		if r.err != nil {
			return
		}
		if seen[e.Name] {
			r.fail(CodeExport, fmt.Sprintf("export %q twice", e.Name), "unique export names")
			return
		}
		seen[e.Name] = true
		if item, allowed := d.exportFault(e); item != "" {
			r.fail(CodeExport, item, allowed)
			return
		}
		if e.Kind == KindFunc {
			e.Type = d.m.typeOf(e.Index)
		}
		d.m.Exports = append(d.m.Exports, e)
	}
}

// exportable is the size of the index space of a kind.
func (d *decoder) exportable(r *reader, k Kind) int {
	switch k {
	case KindFunc:
		return int(d.m.functions())
	case KindTable:
		return len(d.m.tables)
	case KindMemory:
		if d.m.HasMemory {
			return 1
		}
		return 0
	case KindGlobal:
		return len(d.m.globals)
	}
	r.malformed(fmt.Sprintf("export kind %d", k), "function, table, memory or global")
	return 0
}

// exportFault says what is wrong with an export by the rules of ABI §2, or "".
func (d *decoder) exportFault(e Export) (item, allowed string) {
	switch {
	case e.Name == FuelGlobal:
		return fmt.Sprintf("export %q", e.Name), "any other name: this one is the host's"
	case e.Name == "_start":
		return fmt.Sprintf("export %q", e.Name), "a reactor: _initialize instead of _start"
	case e.Name == "memory":
		if e.Kind != KindMemory {
			return fmt.Sprintf("export %q is a %s", e.Name, e.Kind), "the memory"
		}
	case e.Name == "_initialize" || strings.HasPrefix(e.Name, "rp_"):
		if e.Kind != KindFunc {
			return fmt.Sprintf("export %q is a %s", e.Name, e.Kind), "a function defined in the module"
		}
		if uint64(e.Index) < uint64(len(d.m.Imports)) {
			in := d.m.Imports[e.Index]
			return fmt.Sprintf("export %q is the import %q %q", e.Name, in.Module, in.Name), "a function defined in the module"
		}
	}
	return "", ""
}
