package meter

import "fmt"

func (d *decoder) elementSection(r *reader) {
	entries := 0
	for range r.count(d.lim.ElementSegments, "element segments") {
		e := d.element(r, d.lim.ElementEntries-entries)
		if r.err != nil {
			return
		}
		entries += len(e.entries)
		if e.mode == modeActive {
			item := fmt.Sprintf("active element segment %d", len(d.m.elements))
			d.fits(r, item, e.offset, len(e.entries), uint64(d.m.tables[0].min), "table")
		}
		d.m.elements = append(d.m.elements, e)
	}
}

// element reads one of the eight forms. Bit 0 of the flag: passive or declared; bit 1: explicit table
// index, or declared; bit 2: expressions instead of function indices.
func (d *decoder) element(r *reader, room int) element {
	flag := r.u32("element segment flag")
	if flag > 7 {
		r.malformed(fmt.Sprintf("element segment flag %d", flag), "0 to 7")
		return element{}
	}
	e := element{kind: FuncRef, exprs: flag&4 != 0}
	switch {
	case flag&1 == 0:
		if flag&2 != 0 {
			r.index(len(d.m.tables), "element segment table index")
		} else if len(d.m.tables) == 0 {
			r.malformed("active element segment without a table", "a table")
		}
		e.offset = d.constant(r, len(d.m.globals))
	case flag&2 != 0:
		e.mode = modeDeclared
	default:
		e.mode = modePassive
	}
	if flag&3 != 0 {
		d.elementKind(r, &e)
	}
	n := r.u32("element entries")
	if uint64(n) > uint64(room) {
		r.over(fmt.Sprintf("element entries, %d before this segment and in it", d.lim.ElementEntries-room), uint64(n), d.lim.ElementEntries)
		return e
	}
	e.entries = make([]constExpr, 0, min(int(n), r.left()))
	for range n {
		if r.err != nil {
			return e
		}
		e.entries = append(e.entries, d.elementEntry(r, &e))
	}
	return e
}

func (d *decoder) elementKind(r *reader, e *element) {
	if e.exprs {
		e.kind = r.referenceType("element type")
		return
	}
	if kind := r.byte("element kind"); kind != 0 && r.err == nil {
		r.malformed(fmt.Sprintf("element kind 0x%02x", kind), "0 (functions)")
	}
}

func (d *decoder) elementEntry(r *reader, e *element) constExpr {
	if e.exprs {
		return d.constant(r, len(d.m.globals))
	}
	return constExpr{op: opRefFunc, a: r.index(int(d.m.functions()), "element function index")}
}

func (d *decoder) dataSection(r *reader) {
	total := 0
	n := r.count(d.lim.DataSegments, "data segments")
	d.m.data = make([]dataSegment, 0, n)
	for range n {
		s := d.dataSegment(r)
		if total += len(s.bytes); total > d.lim.DataBytes {
			r.over("data bytes", uint64(total), d.lim.DataBytes)
		}
		if r.err != nil {
			return
		}
		if s.mode == modeActive {
			item := fmt.Sprintf("active data segment %d", len(d.m.data))
			d.fits(r, item, s.offset, len(s.bytes), uint64(d.m.MemoryMin)<<16, "memory")
		}
		d.m.data = append(d.m.data, s)
	}
}

func (d *decoder) dataSegment(r *reader) dataSegment {
	var s dataSegment
	switch flag := r.u32("data segment flag"); flag {
	case 0, 2:
		if flag == 2 {
			if i := r.u32("data segment memory index"); i != 0 {
				r.malformed(fmt.Sprintf("data segment memory index %d", i), "0")
			}
		}
		if !d.m.HasMemory {
			r.malformed("active data segment without a memory", "a memory")
		}
		s.offset = d.constant(r, len(d.m.globals))
	case 1:
		s.mode = modePassive
	default:
		r.malformed(fmt.Sprintf("data segment flag %d", flag), "0, 1 or 2")
	}
	n := r.u32("data segment length")
	if uint64(n) > uint64(d.lim.DataBytes) {
		r.over("data bytes in one segment", uint64(n), d.lim.DataBytes)
	}
	s.bytes = r.take(n, "data segment")
	return s
}

// fits refuses an active segment that core 2.0 would trap for at instantiation: memory and table then have their minimum,
// and no global is imported, so the offset is known here. An engine may leave such elements out and go on. An
// offset of another type is the engine's to refuse.
func (d *decoder) fits(r *reader, item string, offset constExpr, n int, room uint64, into string) {
	for offset.op == opGlobalGet { // of an earlier global each time
		offset = d.m.globals[offset.a].init
	}
	if offset.op != opI32Const || r.err != nil {
		return
	}
	if at := uint64(uint32(offset.lo)); at+uint64(n) > room {
		r.fail(CodeInitTrap, fmt.Sprintf("%s: %d at %d", item, n, at), fmt.Sprintf("inside the %s of %d at instantiation", into, room))
	}
}
