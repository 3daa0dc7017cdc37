package hostiletest

import (
	"fmt"
	"math/rand/v2"
	"strings"

	asm "github.com/routerd/routerd/host/wasmtest"
)

// setUpFamilies go wrong while a module is started, set up or tested.
func setUpFamilies() []family {
	return []family{
		{"start section", startSection},
		{"_initialize", initialise},
		{"set-up fuel", setUpFuel},
		{"rp_abi_v1", abiVersions},
		{"rp_alloc", allocators},
		{"rp_configure and rp_bind", configureAndBind},
		{"active segments", activeSegments},
		{"self-test", selfTests},
		{"manifest", manifests},
	}
}

const initTrap = "E_INIT_TRAP"

// endingWrong are bodies () -> () that must not end well.
func endingWrong(rnd *rand.Rand) (name string, code asm.Code) {
	rows := []struct {
		name string
		code asm.Code
	}{
		{"loop", asm.Loop(asm.Br(0))},
		{"trap", asm.Op(asm.Unreachable)},
		{"out of bounds", asm.Cat(asm.I32(-4), asm.Load32(0), asm.Op(asm.Drop))},
		{"bulk over 4 MiB", asm.Cat(asm.I32(0), asm.I32(0), asm.I32(5<<20), asm.Op(0xfc, 11, 0))},
		{"growing for ever", asm.Loop(asm.I32(1), asm.Op(0x40, 0, asm.Drop), asm.Br(0))},
		{"recursion", asm.Call(0)},
	}
	row := rows[rnd.IntN(len(rows))]
	return row.name, row.code
}

// recursive adds function 0, which calls itself for ever.
func recursive(m *asm.Module) { m.Func("", "", "", asm.Call(m.Next())) }

func startSection(rnd *rand.Rand, _ [][]byte) Specimen {
	withStart := func(index uint64) []byte {
		return changeSection(plainGuest(), idStart, func([]byte) []byte { return asm.Uleb(index) })
	}
	switch rnd.IntN(6) {
	case 0:
		g := asm.Guest{Start: asm.Call(0), Imports: [][4]string{{wasi, "sched_yield", "", "i"}}}
		g.Start = append(g.Start, asm.Drop)
		return mustRefuse("calls an import", g.Bytes(), stepStart, initTrap, "")
	case 1:
		g := asm.Guest{Imports: [][4]string{{"env", "abort", "iiii", ""}}, Start: asm.Cat(asm.I32(1), asm.I32(-1), asm.I32(7), asm.I32(0), asm.Call(0))}
		return mustRefuse("aborts", g.Bytes(), stepStart, initTrap, "abort")
	case 2:
		b := asm.Guest{Imports: [][4]string{{wasi, "sched_yield", "", "i"}}}.Bytes()
		return mustRefuse("is an import", changeSection(b, idStart, func([]byte) []byte { return []byte{0} }), stepWalk, "E_IMPORT", "")
	case 3:
		return mustRefuse("has parameters", withStart(1), stepWalk, "E_PARSE", "")
	case 4:
		return mustRefuse("is no function", withStart(uint64(between(rnd, 5, 1<<31))), stepWalk, "E_PARSE", "")
	}
	name, code := endingWrong(rnd)
	return mustRefuse(name, asm.Guest{Before: recursive, Start: code}.Bytes(), stepStart, initTrap, "")
}

func initialise(rnd *rand.Rand, _ [][]byte) Specimen {
	if rnd.IntN(4) == 0 {
		g := asm.Guest{Imports: [][4]string{{wasi, "proc_exit", "i", ""}}, Initialize: asm.Cat(asm.I32(rnd.Int32()), asm.Call(0))}
		return mustRefuse("proc_exit", g.Bytes(), stepStart, initTrap, "exit")
	}
	name, code := endingWrong(rnd)
	return mustRefuse(name, asm.Guest{Before: recursive, Initialize: code}.Bytes(), stepStart, initTrap, "")
}

// setUpFuel spends a number of rounds of eight fuel each in _initialize: 200
// million is what set-up has.
func setUpFuel(rnd *rand.Rand, _ [][]byte) Specimen {
	rounds := between(rnd, 1, 24) * 1_000_000
	rounds = oneOf(rnd, rounds, rounds, 30_000_000, 1_000_000_000)
	code := asm.Cat(asm.I32(int32(rounds)), asm.Set(0),
		asm.Loop(asm.Op(0x01, 0x01, 0x01), asm.Get(0), asm.I32(1), asm.Op(asm.I32Sub), asm.Tee(0), asm.BrIf(0)))
	b := asm.Guest{Initialize: code}.Bytes()
	if rounds > 25_000_000 {
		return mustRefuse(named("rounds", rounds), b, stepStart, initTrap, "fuel")
	}
	return mustLoad(named("rounds", rounds), b)
}

func abiVersions(rnd *rand.Rand, _ [][]byte) Specimen {
	if rnd.IntN(2) == 0 {
		name, code := endingWrong(rnd)
		return mustRefuse(name, asm.Guest{Before: recursive, ABI: asm.Cat(code, asm.I32(0))}.Bytes(), stepStart, initTrap, "")
	}
	minor := oneOf(rnd, 1, 7, -1, -1<<31, 1<<31-1)
	return mustRefuse(named("minor", minor), asm.Guest{ABI: asm.I32(int32(minor))}.Bytes(), stepStart, "E_ABI", "")
}

// allocators give memory that is none. The first request is for the
// configuration, two bytes; the second for the frame.
func allocators(rnd *rand.Rand, _ [][]byte) Specimen {
	if rnd.IntN(3) == 0 {
		at := int32(between(rnd, 1, 100) * 64)
		return mustRefuse("the same twice", asm.Guest{Alloc: asm.I32(at)}.Bytes(), stepBind, initTrap, "twice")
	}
	wrong := oneOf[int32](rnd, 0, -64, -16, 1, 1025, 4<<16-64, 4<<16, 1<<30, -1<<31)
	small := asm.I32(1024)                                   // where the configuration goes
	frame := asm.Cat(asm.Get(0), asm.I32(128), asm.Op(0x4a)) // i32.gt_s
	if rnd.IntN(2) == 0 || wrong == 4<<16-64 {
		code := asm.Cat(small, asm.Set(1), frame, asm.If(asm.I32(wrong), asm.Set(1)), asm.Get(1))
		return mustRefuse(fmt.Sprintf("%#x for the frame", uint32(wrong)), asm.Guest{Alloc: code}.Bytes(), stepBind, initTrap, "rp_alloc")
	}
	return mustRefuse(fmt.Sprintf("%#x", uint32(wrong)), asm.Guest{Alloc: asm.I32(wrong)}.Bytes(), stepConfig, initTrap, "rp_alloc")
}

func configureAndBind(rnd *rand.Rand, _ [][]byte) Specimen {
	bind := rnd.IntN(2) == 0
	name, code := endingWrong(rnd)
	g, step, refusal := asm.Guest{Before: recursive}, stepConfig, initTrap
	code = asm.Cat(code, asm.I32(0))
	if rnd.IntN(3) == 0 {
		n := oneOf(rnd, 1, -1, -6, -7, 1<<31-1)
		name, code = named("returns", n), asm.I32(int32(n))
		if !bind {
			refusal = "E_CONFIGURE"
		}
	}
	g.Configure = code
	if bind {
		g.Configure, g.Bind, step = nil, code, stepBind
	}
	return mustRefuse(name+" in "+step, g.Bytes(), step, refusal, "")
}

// activeSegments do not fit what they are for, by a constant or by a global that
// holds it.
func activeSegments(rnd *rand.Rand, _ [][]byte) Specimen {
	at := oneOf[int32](rnd, 4<<16, 4<<16-3, -1, 1<<31-1, -1<<31)
	refuse := func(name string, b []byte) Specimen { return mustRefuse(name, b, stepWalk, initTrap, name) }
	size := between(rnd, 1, 100)
	behind := oneOf(rnd, int32(size), at)
	elements := func(offset asm.Code, b []byte) []byte {
		return appendEntries(b, idElement, 1, asm.Cat(asm.Op(0), offset, asm.Op(0x0b, 1, 0))...)
	}
	switch rnd.IntN(4) {
	case 0:
		return refuse("active data segment", asm.Guest{After: func(m *asm.Module) { m.Data(at, []byte("four")) }}.Bytes())
	case 1: // nothing at all, behind the end
		return refuse("active data segment", asm.Guest{After: func(m *asm.Module) { m.Data(max(at, 4<<16+1), nil) }}.Bytes())
	case 2:
		b := tabled(size)
		global := entryCount(b, idGlobal)
		b = appendEntries(b, idGlobal, 1, asm.Cat(asm.Op(0x7f, 0), asm.I32(behind), asm.Op(0x0b))...)
		return refuse("active element segment", elements(asm.GetGlobal(uint64(global)), b))
	}
	return refuse("active element segment", elements(asm.I32(behind), tabled(size)))
}

func selfTests(rnd *rand.Rand, _ [][]byte) Specimen {
	always := func(name, code string, score asm.Code) Specimen {
		return mustRefuse(name, asm.Guest{Score: score, ScoreTypes: asm.ColumnTypes, Before: recursive}.Bytes(), stepSelfTest, code, "")
	}
	switch rnd.IntN(7) {
	case 0:
		return always("endless", "E_FUEL", asm.Cat(asm.Loop(asm.Br(0)), asm.I32(0)))
	case 1:
		return always("trap", "E_TRAP", asm.Op(asm.Unreachable))
	case 2:
		return always("NaN", "E_NAN", asm.Constant(asm.F64(0), asm.F64(0), asm.Op(asm.F64Div)))
	case 3:
		return always("unwritten", "E_UNWRITTEN", asm.I32(0))
	case 4:
		return always("recursion", "E_FUEL", asm.Cat(asm.Call(0), asm.I32(0)))
	case 5:
		g := asm.Guest{Extra: fmt.Sprintf(`,"limits":{"fuel_base":%d,"fuel_per_row":1}`, between(rnd, 1, 1000))}
		return mustRefuse("too little fuel declared", g.Bytes(), stepSelfTest, "E_FUEL", "")
	}
	count := asm.Cat(asm.GetGlobal(1), asm.I32(1), asm.Op(asm.I32Add), asm.SetGlobal(1), asm.Constant(asm.GetGlobal(1), asm.Op(asm.F64ConvertU)))
	g := asm.Guest{Before: func(m *asm.Module) { m.Global(0) }, Score: count, ScoreTypes: asm.ColumnTypes}
	return mustRefuse("counts its calls", g.Bytes(), stepSelfTest, "E_NONDETERMINISTIC", "")
}

// manifests ask for what is not there or keep a reader busy.
func manifests(rnd *rand.Rand, _ [][]byte) Specimen {
	const head = `{"abi":"routerd.policy/v1","name":"test","version":"1.0.0","kinds":["scorer"],"columns":[{"name":"load.active_requests"}]`
	n := between(rnd, 65, 15_000)
	refs := `"a0":{"type":"object","additionalProperties":true}`
	for i := 1; i < 40; i++ {
		refs += fmt.Sprintf(`,"a%d":{"allOf":[{"$ref":"#/$defs/a%d"},{"$ref":"#/$defs/a%d"}]}`, i, i-1, i-1)
	}
	rows := []struct{ name, text string }{
		{"nothing", ""},
		{"no object", oneOf(rnd, "null", "[]", "7", `"x"`, "{", "\x00", "\xff\xfe{}")},
		{"deep lists", head + `,"ext":{"x":` + strings.Repeat("[", n) + strings.Repeat("]", n) + `}}`},
		{"deep objects, cut off", head + `,"ext":` + strings.Repeat(`{"a":`, n/2)},
		{"double key", head + `,"name":"test"}`},
		{"unknown member", head + `,"more":1}`},
		{"long string", head + `,"description":"` + strings.Repeat("x", n+200) + `"}`},
		{"control characters", head + `,"description":"a\u0000\u001b[2Jb"}`},
		{"a number that is none", head + `,"score_range":{"min":-1e999,"max":1e999}}`},
		{"many columns", strings.Replace(head, "}]", `}`+strings.Repeat(`,{"name":"kv.usage"}`, n/10)+"]", 1) + "}"},
		{"rows", head + `,"limits":{"max_rows":4294967295}}`},
		{"pages", head + `,"limits":{"memory_pages":65536}}`},
		{"fuel", head + `,"limits":{"fuel_base":18446744073709551615}}`},
		{"schema of many nodes", head + `,"config_schema":{"enum":[` + strings.Repeat("0,", max(n/2, 1100)) + `0]}}`},
		{"schema that doubles 40 times", head + `,"config_schema":{"$defs":{` + refs + `},"$ref":"#/$defs/a39"}}`},
		{"schema that holds itself", head + `,"config_schema":{"type":"object","properties":{"a":{"$ref":"#"}}}}`},
		{"schema elsewhere", head + `,"config_schema":{"$ref":"http://127.0.0.1/schema"}}`},
		{"schema with a huge number", head + `,"config_schema":{"maximum":` + strings.Repeat("9", 400) + `}}`},
		{"schema with a pattern that is none", head + `,"config_schema":{"type":"object","properties":{"a":{"pattern":"((((("}}}}`},
	}
	row := rows[rnd.IntN(len(rows))]
	b := asm.Guest{Manifest: "-"}.Bytes()
	return mustRefuse(row.name, appendCustom(b, "routerd.manifest", []byte(row.text)), stepManifest, "E_MANIFEST", "")
}
