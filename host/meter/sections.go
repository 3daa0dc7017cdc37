package meter

import "fmt"

func (d *decoder) typeSection(r *reader) {
	values := 0
	for range r.count(d.lim.Types, "types") {
		if form := r.byte("type form"); form != 0x60 && r.err == nil {
			r.malformed(fmt.Sprintf("type form 0x%02x", form), "function types (0x60)")
		}
		t := FuncType{
			Params:  r.valueTypes(d.lim.Params, "parameters of a type"),
			Results: r.valueTypes(d.lim.Results, "results of a type"),
		}
		if r.err != nil {
			return
		}
		if values += len(t.Params) + len(t.Results); values > d.lim.TypeValues {
			r.over("parameters and results of all types", uint64(values), d.lim.TypeValues)
			return
		}
		d.m.types = append(d.m.types, t)
	}
}

func (r *reader) valueTypes(limit int, what string) []ValueType {
	var ts []ValueType
	for range r.count(limit, what) {
		ts = append(ts, r.valueType("value type"))
	}
	return ts
}

// typeIndex reads an index into the type section.
func (d *decoder) typeIndex(r *reader) uint32 {
	return r.index(len(d.m.types), "type index")
}

// index reads an index that must be below n.
func (r *reader) index(n int, what string) uint32 {
	i := r.u32(what)
	if uint64(i) >= uint64(n) && r.err == nil {
		r.malformed(fmt.Sprintf("%s %d", what, i), fmt.Sprintf("below %d", n))
		return 0
	}
	return i
}

func (d *decoder) importSection(r *reader) {
	for range r.count(d.lim.Imports, "imports") {
		in := Import{Module: r.text(d.lim.NameBytes, "import module name"), Name: r.text(d.lim.NameBytes, "import name")}
		kind := Kind(r.byte("import kind"))
		if r.err != nil {
			return
		}
		if kind != KindFunc {
			r.fail(CodeImport, fmt.Sprintf("import %q %q of kind %s (%d)", in.Module, in.Name, kind, kind), "functions only: memory, tables and globals are defined in the module")
			return
		}
		if in.Module == RefuelModule && in.Name == RefuelName {
			r.fail(CodeImport, fmt.Sprintf("import %q %q", in.Module, in.Name), "any other name: this one is the host's")
			return
		}
		in.typeIndex = d.typeIndex(r)
		if r.err != nil {
			return
		}
		in.Type = d.m.types[in.typeIndex]
		d.m.Imports = append(d.m.Imports, in)
	}
}

func (d *decoder) functionSection(r *reader) {
	n := r.count(d.lim.Functions, "functions")
	d.m.funcs = make([]uint32, 0, n)
	for range n {
		d.m.funcs = append(d.m.funcs, d.typeIndex(r))
		if r.err != nil {
			return
		}
	}
}

// sizes reads limits: flag, minimum, and maximum where the flag says so.
func (r *reader) sizes(what string) (lo, hi uint32, bounded bool) {
	flag := r.byte(what + " limits")
	if flag > 1 {
		r.malformed(fmt.Sprintf("%s limits flag 0x%02x", what, flag), "0 or 1: not shared, 32-bit")
		return 0, 0, false
	}
	lo = r.u32(what + " minimum")
	if flag == 0 {
		return lo, 0, false
	}
	hi = r.u32(what + " maximum")
	if hi < lo && r.err == nil {
		r.malformed(fmt.Sprintf("%s maximum %d below minimum %d", what, hi, lo), "a maximum of at least the minimum")
	}
	return lo, hi, true
}

func (d *decoder) tableSection(r *reader) {
	for range r.count(1, "tables") {
		t := table{kind: r.referenceType("table type")}
		t.min, t.max, t.hasMax = r.sizes("table")
		if !t.hasMax {
			t.max = t.min // table.grow then answers -1
		}
		if uint64(t.max) > uint64(d.lim.TableEntries) {
			r.over("table entries", uint64(t.max), d.lim.TableEntries)
		}
		d.m.tables = append(d.m.tables, t)
	}
}

func (d *decoder) memorySection(r *reader) {
	for range r.count(1, "memories") {
		lo, hi, bounded := r.sizes("memory")
		if !bounded {
			hi = 65_536
		}
		if max(lo, hi) > 65_536 {
			r.over("memory pages", uint64(max(lo, hi)), 65_536)
		}
		d.m.HasMemory, d.m.MemoryMin, d.m.MemoryMax = true, lo, hi
	}
}

func (d *decoder) globalSection(r *reader) {
	n := r.count(d.lim.Globals, "globals")
	for i := range n {
		g := global{kind: r.valueType("global type")}
		mut := r.byte("global mutability")
		if mut > 1 {
			r.malformed(fmt.Sprintf("global mutability 0x%02x", mut), "0 or 1")
		}
		g.mutable = mut == 1
		g.init = d.constant(r, i)
		if r.err != nil {
			return
		}
		d.m.globals = append(d.m.globals, g)
	}
}

// constant reads a constant expression: exactly one constant instruction and its end. globals is how many
// globals it may name.
func (d *decoder) constant(r *reader, globals int) constExpr {
	var in instr
	r.instr(&in, d.lim)
	if r.err != nil {
		return constExpr{}
	}
	switch in.op {
	case opI32Const, opI64Const, opF32Const, opF64Const, opRefNull:
	case opGlobalGet:
		if uint64(in.a) >= uint64(globals) {
			r.malformed(fmt.Sprintf("global index %d in a constant expression", in.a), fmt.Sprintf("below %d", globals))
		}
	case opRefFunc:
		if in.a >= d.m.functions() {
			r.malformed(fmt.Sprintf("function index %d in a constant expression", in.a), fmt.Sprintf("below %d", d.m.functions()))
		}
	default:
		if in.op != opVec || in.sub != vecConst {
			r.malformed(fmt.Sprintf("instruction 0x%02x in a constant expression", in.op), "one constant, global.get or ref instruction")
		}
	}
	if end := r.byte("end of a constant expression"); end != opEnd && r.err == nil {
		r.malformed(fmt.Sprintf("instruction 0x%02x after the first of a constant expression", end), "end")
	}
	return constExpr{op: in.op, a: in.a, lo: in.lo, hi: in.hi}
}

func (d *decoder) startSection(r *reader) {
	d.m.start = r.index(int(d.m.functions()), "start function index")
	if r.err != nil {
		return
	}
	d.m.HasStart = true
	if uint64(d.m.start) < uint64(len(d.m.Imports)) {
		in := d.m.Imports[d.m.start]
		r.fail(CodeImport, fmt.Sprintf("start function is the import %q %q", in.Module, in.Name), "a function defined in the module")
		return
	}
	if t := d.m.typeOf(d.m.start); len(t.Params)+len(t.Results) > 0 {
		r.malformed("start function of type "+t.String(), "() -> ()")
	}
}

// codeSection notes where each body is; bodies are decoded when all sections are known.
func (d *decoder) codeSection(r *reader) {
	d.codes = r.count(d.lim.Functions, "function bodies")
	d.m.bodies = make([]body, 0, d.codes)
	for range d.codes {
		size := r.u32("body length")
		if uint64(size) > uint64(d.lim.BodyBytes) {
			r.over(fmt.Sprintf("body bytes of function %d", len(d.m.Imports)+len(d.m.bodies)), uint64(size), d.lim.BodyBytes)
		}
		b := body{offset: r.base + r.off}
		b.code = r.take(size, "body")
		if r.err != nil {
			return
		}
		d.m.bodies = append(d.m.bodies, b)
	}
}
