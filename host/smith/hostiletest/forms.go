package hostiletest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	asm "github.com/routerd/routerd/host/wasmtest"
)

// formFamilies are written in ways that an engine and a rewriter could read
// differently, or name what is not theirs.
func formFamilies() []family {
	return []family{
		{"SIMD forms", simdForms},
		{"LEB128 forms", lebForms},
		{"other proposals", proposals},
		{"re-exported imports", reExports},
		{"import forms", importForms},
		{"hidden names", hiddenNames},
		{"huge names", hugeNames},
		{"counts that lie", countLies},
		{"section order", sectionOrder},
		{"bodies that do not type-check", illTyped},
	}
}

// inBody is the plain guest with one more function that holds code, never
// called.
func inBody(code ...byte) []byte {
	return appendVoid(plainGuest(), 1, append(append([]byte{0}, code...), 0x0b)...)
}

func simdForms(rnd *rand.Rand, _ [][]byte) Specimen {
	sub := byte(rnd.IntN(0x80))
	padded := func(prefix byte, length int) []byte { // an opcode longer than it need be
		b := []byte{prefix, sub | 0x80}
		for range length - 2 {
			b = append(b, 0x80)
		}
		return append(b, 0)
	}
	rows := [][]byte{
		padded(0xfd, 2), padded(0xfd, between(rnd, 3, 12)), padded(0xfc, 2), padded(0xfc, between(rnd, 3, 12)),
		{0xfd, 0x80 | sub, byte(between(rnd, 2, 0x7f))}, // relaxed SIMD and beyond
		{0xfd, 0x80 | sub, 0x81, 0x00},
		{0xfc, byte(between(rnd, 18, 255))},
		{0xfd, oneOf[byte](rnd, 154, 162, 165, 175, 187, 194, 210, 226, 238), 0x01},
		{0xfd, 0xff, 0xff, 0xff, 0xff, 0x0f},
	}
	code := rows[rnd.IntN(len(rows))]
	return mustRefuse(fmt.Sprintf("%x", code), inBody(asm.Cat(code, asm.Op(asm.Drop))...), stepBodies, "E_PARSE", "")
}

// padded is an unsigned LEB128 of a given length.
func padded(v uint64, length int) []byte {
	var b []byte
	for range length - 1 {
		b = append(b, byte(v)|0x80)
		v >>= 7
	}
	return append(b, byte(v))
}

// lebForms: up to the length that the width allows a number may be padded, and
// the module must work; beyond it must be refused.
func lebForms(rnd *rand.Rand, _ [][]byte) Specimen {
	length := between(rnd, 2, 10)
	n := padded(0, length)
	refuse := func(name string, code ...byte) Specimen {
		return mustRefuse(fmt.Sprintf("%s of %d bytes", name, length), inBody(code...), stepBodies, "E_PARSE", "")
	}
	check := func(name string, most int, code ...byte) Specimen {
		if length > most {
			return refuse(name, code...)
		}
		return mustLoad(fmt.Sprintf("%s of %d bytes", name, length), inBody(code...))
	}
	switch rnd.IntN(8) {
	case 0:
		return check("i32.const", 5, asm.Cat(asm.Op(0x41), n, asm.Op(asm.Drop))...)
	case 1:
		return check("i64.const", 10, asm.Cat(asm.Op(0x42), n, asm.Op(asm.Drop))...)
	case 2:
		return check("global index", 5, asm.Cat(asm.Op(0x23), n, asm.Op(asm.Drop))...)
	case 3:
		return check("load offset", 5, asm.Cat(asm.I32(0), asm.Op(0x28, 2), n, asm.Op(asm.Drop))...)
	case 4:
		return check("function index", 5, asm.Cat(asm.Op(0x10), n, asm.Op(asm.Drop))...)
	case 5:
		return check("br_table", 5, asm.Cat(asm.I32(0), asm.Op(0x0e), padded(1, length), n, n)...)
	case 6: // bits that the width does not have
		length = 5
		return refuse("index with bits over 32", asm.Cat(asm.Op(0x23, 0x80, 0x80, 0x80, 0x80, byte(16<<rnd.IntN(3))), asm.Op(asm.Drop))...)
	}
	// A length of a section: engines and linkers write five bytes.
	p := cutModule(plainGuest())
	out := []byte(moduleHeader)
	for _, s := range p {
		out = append(append(append(out, s.id), padded(uint64(len(s.body)), length)...), s.body...)
	}
	if length > 5 {
		return mustRefuse(named("section lengths of bytes", length), out, stepWalk, "E_PARSE", "")
	}
	return mustLoad(named("section lengths of bytes", length), out)
}

func proposals(rnd *rand.Rand, _ [][]byte) Specimen {
	body := func(name string, code ...byte) Specimen {
		return mustRefuse(name, inBody(code...), stepBodies, "E_PARSE", "")
	}
	memory := func(name string, content ...byte) Specimen {
		b := changeSection(plainGuest(), idMemory, func([]byte) []byte { return content })
		return mustRefuse(name, b, stepWalk, "E_PARSE", "")
	}
	switch rnd.IntN(12) {
	case 0:
		return body("threads", 0xfe, byte(rnd.IntN(0x4f)), 2, 0)
	case 1:
		return body("tail call", oneOf[byte](rnd, 0x12, 0x13, 0x15), 0, 0)
	case 2:
		return body("exceptions", oneOf[byte](rnd, 0x06, 0x07, 0x08, 0x09, 0x18, 0x19, 0x1f, 0x0a), 0x40, 0)
	case 3:
		return body("typed references", oneOf[byte](rnd, 0x14, 0xd3, 0xd4, 0xd5, 0xd6), 0)
	case 4:
		return body("garbage collection", 0xfb, byte(rnd.IntN(31)), 0)
	case 5:
		return body("second memory", asm.Cat(asm.I32(0), asm.Op(0x28, 0x42, 1, 0, asm.Drop))...)
	case 6:
		return memory("shared memory", 1, 3, 4, 8)
	case 7:
		return memory("64-bit memory", 1, byte(between(rnd, 4, 255)), 4, 8)
	case 8:
		return mustRefuse("two memories", changeSection(plainGuest(), idMemory, func([]byte) []byte { return []byte{2, 0, 4, 0, 1} }), stepWalk, "E_LIMIT", "memor")
	case 9:
		return mustRefuse("two tables", changeSection(plainGuest(), idTable, func([]byte) []byte { return []byte{2, 0x70, 0, 4, 0x70, 0, 1} }), stepWalk, "E_LIMIT", "table")
	case 10:
		return mustRefuse("types of other proposals", appendEntries(plainGuest(), idType, 1, byte(oneOf(rnd, 0x5f, 0x5e, 0x4e, 0x50, 0x00)), 0, 0), stepWalk, "E_PARSE", "")
	}
	b := plainGuest()
	b[4] = 0x0d // a component
	b[6] = 1
	return mustRefuse("component", b, stepWalk, "E_PARSE", "header")
}

func reExports(rnd *rand.Rand, _ [][]byte) Specimen {
	name := oneOf(rnd, "rp_abi_v1", "rp_alloc", "rp_configure", "rp_bind", "rp_score", "rp_idle", "rp_last_error", "rp_anything", "_initialize")
	g := asm.Guest{
		Skip:    map[string]bool{name: true},
		Imports: [][4]string{{wasi, "proc_raise", "i", "i"}},
		After:   func(m *asm.Module) { m.Export(name, 0) },
	}
	switch rnd.IntN(7) {
	case 5, 6:
		return missingExport(rnd)
	case 0:
		g.Skip, g.After = map[string]bool{"memory": true}, func(m *asm.Module) { m.Export("memory", 0) }
		name = "memory"
	case 1:
		name = oneOf(rnd, "_start", "__fuel")
		g.Skip, g.After = nil, func(m *asm.Module) { m.Export(name, 1) }
	case 2: // twice
		g.Skip, g.After = nil, func(m *asm.Module) { m.Export("rp_score", 1) }
		name = "rp_score"
	case 3:
		g.Skip, g.After = map[string]bool{name: true}, func(m *asm.Module) { m.ExportMemory(name) }
	}
	return mustRefuse(name, g.Bytes(), stepWalk, "E_EXPORT", name)
}

// missingExport lacks an export that every scorer has, or has it with another
// signature.
func missingExport(rnd *rand.Rand) Specimen {
	name := oneOf(rnd, "rp_abi_v1", "rp_alloc", "rp_configure", "rp_bind", "rp_score", "memory")
	g := asm.Guest{Skip: map[string]bool{name: true}}
	if name != "memory" && rnd.IntN(2) == 0 {
		g.After = func(m *asm.Module) {
			m.Export(name, m.Func(strings.Repeat("l", between(rnd, 3, 64)), "", ""))
		}
	}
	return mustRefuse("without a right "+name, g.Bytes(), stepExports, "E_EXPORT", name)
}

func importForms(rnd *rand.Rand, _ [][]byte) Specimen {
	with := func(step, item string, i [4]string) Specimen {
		return mustRefuse(fmt.Sprintf("%.60q", i), asm.Guest{Imports: [][4]string{i}}.Bytes(), step, "E_IMPORT", item)
	}
	entry := func(name string, kind ...byte) Specimen {
		b := appendEntries(plainGuest(), idImport, 1, slices.Concat(withName("env"), withName(name), kind)...)
		return mustRefuse(name, b, stepWalk, "E_IMPORT", name)
	}
	switch rnd.IntN(11) {
	case 0, 8, 9:
		return with(stepImports, "env.foo", [4]string{"env", "foo", "", ""})
	case 1:
		return with(stepWalk, "__refuel", [4]string{"routerd_v1", "__refuel", "", ""})
	case 2:
		return with(stepImports, "signature", [4]string{wasi, "fd_write", strings.Repeat("i", between(rnd, 5, 64)), "i"})
	case 3:
		return with(stepImports, "not in the manifest", [4]string{"routerd_v1", "log", "iii", ""})
	case 4:
		hostile := make([]byte, between(rnd, 1, 200))
		for i := range hostile {
			hostile[i] = byte(rnd.IntN(0x80))
		}
		return with(stepImports, "does not exist", [4]string{string(hostile), "\x1b[2J\n\"'", "", ""})
	case 5:
		return entry("table", 1, 0x70, 0, 1)
	case 6:
		return entry("memory", 2, 0, 1)
	case 7:
		return entry("global", 3, 0x7f, oneOf[byte](rnd, 0, 1))
	}
	b := appendEntries(plainGuest(), idImport, 1, 1, 0xff, 1, 'x', 0, 0)
	return mustRefuse("name that is no UTF-8", b, stepWalk, "E_PARSE", "import module name")
}

// hiddenNames reach for what the rewrite adds: a global behind the last, the
// refuel import, locals.
func hiddenNames(rnd *rand.Rand, _ [][]byte) Specimen {
	b := plainGuest()
	globals, functions := entryCount(b, idGlobal), entryCount(b, idFunction)+1
	beyond := func(n int) []byte { return asm.Uleb(uint64(n + oneOf(rnd, 0, 0, 1, rnd.IntN(1000), 1<<31))) }
	body := func(name string, parts ...[]byte) Specimen {
		return mustRefuse(name, inBody(slices.Concat(parts...)...), stepBodies, "E_PARSE", "")
	}
	drop := []byte{asm.Drop}
	switch rnd.IntN(8) {
	case 0:
		return body("global.get", []byte{0x23}, beyond(globals), drop)
	case 1:
		return body("global.set", []byte{0x42, 0, 0x24}, beyond(globals))
	case 2:
		return body("call", []byte{0x10}, beyond(functions))
	case 3:
		return body("local.get", []byte{0x20}, beyond(0), drop)
	case 4:
		return body("local.set", []byte{0x42, 0, 0x21}, beyond(0))
	case 5:
		return mustRefuse("global in an initialiser", appendEntries(b, idGlobal, 1, slices.Concat([]byte{0x7e, 0, 0x23}, beyond(globals), []byte{0x0b})...), stepWalk, "E_PARSE", "")
	case 6:
		return mustRefuse("global in an export", appendEntries(b, idExport, 1, slices.Concat(withName("fuel"), []byte{3}, beyond(globals))...), stepWalk, "E_PARSE", "")
	}
	return mustRefuse("function in an element segment", appendEntries(tabled(4), idElement, 1, slices.Concat([]byte{0, 0x41, 0, 0x0b, 1}, beyond(functions-1))...), stepWalk, "E_PARSE", "")
}

// hugeNames are names for people: they must do no harm.
func hugeNames(rnd *rand.Rand, _ [][]byte) Specimen {
	size := oneOf(rnd, 300, 65_536, 1<<20)
	text := strings.Repeat("\x1b[31m\n\u202e\x00", size/11)
	switch rnd.IntN(4) {
	case 0: // a function name that is shown in a fault
		g := sparedGuest(asm.Op(asm.Unreachable), "")
		names := slices.Concat([]byte{1, 4}, withName(text)) // one name, of rp_score
		content := slices.Concat([]byte{1}, withName(string(names)))
		return mustLoad(named("function name of bytes", len(text)), appendCustom(g.Bytes(), "name", content), "unreachable")
	case 1: // counts and lengths that lie
		content := slices.Concat([]byte{1}, asm.Uleb(uint64(rnd.Uint32())), asm.Uleb(uint64(rnd.Uint32())), []byte(text))
		return mustLoad("name section that lies", appendCustom(plainGuest(), "name", content)) // no engine sees it
	case 2:
		return mustLoad(named("section name of bytes", len(text)), appendCustom(plainGuest(), text, nil))
	}
	g := asm.Guest{After: func(m *asm.Module) { m.Export(strings.ToValidUTF8(text[:between(rnd, 1, 250)], ""), 0) }}
	return mustLoad("export with control characters", g.Bytes())
}

// countLies have a vector or a length that claims more than there is.
func countLies(rnd *rand.Rand, _ [][]byte) Specimen {
	lie := asm.Uleb(uint64(oneOf(rnd, rnd.Uint32N(1<<31)+200_000, 1<<32-1, 1<<31, 1<<20)))
	if rnd.IntN(3) == 0 {
		b := append([]byte(moduleHeader), byte(rnd.IntN(13)))
		return mustRefuse("section length", append(b, lie...), stepWalk, "E_PARSE", "")
	}
	id := oneOf[byte](rnd, idType, idImport, idFunction, idTable, idMemory, idGlobal, idExport, idElement, idCode, idData)
	b := changeSection(tabled(4), id, func([]byte) []byte { return append(slices.Clone(lie), bytes.Repeat([]byte{0}, 64)...) })
	return Specimen{
		Name: fmt.Sprintf("section %d, %x", id, []byte(lie)), Bytes: b,
		Want: Want{Refused: []Refusal{{stepWalk, "E_LIMIT", ""}}},
	}
}

func sectionOrder(rnd *rand.Rand, _ [][]byte) Specimen {
	p := cutModule(tabled(4))
	last := len(p) - 1 // the manifest, which may stand anywhere
	i := rnd.IntN(last)
	refuse := func(name string, b []byte) Specimen { return mustRefuse(name, b, stepWalk, "E_PARSE", "") }
	switch rnd.IntN(6) {
	case 0:
		return refuse("twice", joinModule(append(p, p[i])))
	case 1:
		j := (i + 1 + rnd.IntN(last-1)) % last
		p[i], p[j] = p[j], p[i]
		return Specimen{Name: "exchanged", Bytes: joinModule(p), Want: Want{Refused: []Refusal{{stepWalk, "E_PARSE", ""}, {stepWalk, "E_LIMIT", ""}}}}
	case 2:
		return refuse("unknown section", joinModule(append(p, part{byte(between(rnd, 13, 255)), []byte{0}})))
	case 3:
		p[i].body = append(slices.Clone(p[i].body), make([]byte, between(rnd, 1, 100))...)
		return refuse("too long", joinModule(p))
	case 4:
		b := joinModule(p)
		return Specimen{Name: "cut off", Bytes: b[:between(rnd, 0, len(b)-1)], Want: Want{Refused: []Refusal{{stepWalk, "E_PARSE", ""}, {stepManifest, "E_MANIFEST", ""}}}}
	}
	return mustRefuse("second manifest", joinModule(append(p, p[last])), stepWalk, "E_MANIFEST", "")
}

// illTyped bodies decode, and no engine may run them.
func illTyped(rnd *rand.Rand, _ [][]byte) Specimen {
	rows := [][]byte{
		{asm.I32Add},
		{asm.Drop},
		{0x41, 0},
		{0x41, 0, 0x44, 0, 0, 0, 0, 0, 0, 0, 0, asm.I32Add, asm.Drop},
		{0x02, 0x7f, 0x0b, asm.Drop},
		{0x41, 0, 0x04, 0x7f, 0x41, 0, 0x0b, asm.Drop},
		{0x42, 0, 0x24, 0},
		{0x42, 0, 0x41, 0, 0x36, 2, 0},
		{0x41, 0, 0x28, 4, 0, asm.Drop},
		{0x01, 0x05},
		{0x02, 0x40, 0x41, 0, 0x0b},
		{0xfd, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xfd, 21, 99, asm.Drop}, // lane 99
	}
	code := rows[rnd.IntN(len(rows))]
	return Specimen{
		Name: fmt.Sprintf("%x", code), Bytes: inBody(code...),
		Want: Want{Refused: []Refusal{{stepValidate, "E_PARSE", ""}, {stepBodies, "E_PARSE", ""}}},
	}
}
