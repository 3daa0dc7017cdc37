package meter

// RoundTrip decodes one expression, encodes it, decodes that and encodes again; both encodings are returned
// with the number of instructions. For tests of the pair of coders alone.
func RoundTrip(code []byte) (first, second []byte, n int, err error) {
	once := func(code []byte) (out []byte, n int, err error) {
		r := &reader{b: code, step: StepBodies}
		lim := DefaultLimits()
		var in instr
		for r.err == nil && r.left() > 0 {
			r.instr(&in, &lim)
			if r.err != nil {
				return nil, n, r.err
			}
			out = appendInstr(out, &in)
			n++
		}
		return out, n, nil
	}
	if first, n, err = once(code); err != nil {
		return nil, nil, n, err
	}
	second, _, err = once(first)
	return first, second, n, err
}

// Stats are the largest of each limited quantity in a module.
func Stats(m *Module) map[string]int {
	s := map[string]int{
		"functions": len(m.funcs), "data segments": len(m.data), "globals": len(m.globals), "types": len(m.types),
		"imports": len(m.Imports), "exports": len(m.Exports),
	}
	up := func(k string, v int) { s[k] = max(s[k], v) }
	for _, d := range m.data {
		s["data bytes"] += len(d.bytes)
	}
	for _, e := range m.elements {
		s["element entries"] += len(e.entries)
	}
	for _, t := range m.types {
		up("params", len(t.Params))
		up("results", len(t.Results))
	}
	for _, t := range m.tables {
		up("table", int(t.max))
	}
	w := walker{m: m}
	for i := range m.bodies {
		w.begin(i)
		up("body bytes", len(m.bodies[i].code))
		declared := 0
		for _, g := range w.groups {
			declared += int(g.count)
		}
		up("locals", declared)
		s["locals bytes"] += declared * 8
		for w.next() {
			up("nesting", len(w.open)-1)
			up("loops", w.loops)
			up("br_table", len(w.in.labels))
		}
	}
	return s
}

// Gather adds parts to one value of pieces: all of them in order, and the longest piece.
func Gather(parts [][]byte) (all []byte, longest int) {
	p := &pieces{}
	for _, b := range parts {
		p.add(b)
	}
	for _, b := range append(p.full, p.last) {
		longest = max(longest, len(b))
	}
	return p.appendTo(make([]byte, 0, p.size)), longest
}

// PieceBytes is the longest piece.
const PieceBytes = pieceBytes
