package hostiletest

import (
	"fmt"
	"math"
	"math/rand/v2"

	asm "github.com/routerd/routerd/host/wasmtest"
	"github.com/routerd/routerd/plugins/abi"
)

// hostImport is an import that exists, with what must be said of it.
type hostImport struct{ module, name, params, results string }

func (i hostImport) guest(wrong asm.Code) asm.Guest {
	extra := fuelOf(2_000_000, 64)
	if i.module == "routerd_v1" {
		extra += fmt.Sprintf(`,"imports":[%q]`, i.name)
	}
	g := sparedGuest(wrong, extra)
	g.Imports = [][4]string{{i.module, i.name, i.params, i.results}}
	return g
}

// call pushes arguments and calls the import, which is function 0.
func (i hostImport) call(argument func() int64) asm.Code {
	var code asm.Code
	for _, p := range i.params {
		if p == 'l' {
			code = append(code, asm.I64(argument())...)
		} else {
			code = append(code, asm.I32(int32(argument()))...)
		}
	}
	code = append(code, asm.Call(0)...)
	for range i.results {
		code = append(code, asm.Drop)
	}
	return code
}

const wasi = "wasi_snapshot_preview1"

func anyImport(rnd *rand.Rand) hostImport {
	return oneOf(rnd,
		hostImport{"routerd_v1", "log", "iii", ""},
		hostImport{wasi, "fd_write", "iiii", "i"},
		hostImport{wasi, "random_get", "ii", "i"},
		hostImport{wasi, "clock_time_get", "ili", "i"},
		hostImport{wasi, "poll_oneoff", "iiii", "i"},
		hostImport{wasi, "sched_yield", "", "i"},
		hostImport{wasi, "environ_sizes_get", "ii", "i"},
		hostImport{wasi, "path_open", "iiiiillii", "i"},
		hostImport{wasi, "sock_recv", "iiiiii", "i"},
	)
}

func hostCallLoop(rnd *rand.Rand, _ [][]byte) Specimen {
	i := anyImport(rnd)
	// Small numbers: addresses and lengths in the memory's first page, below the frame or in unused memory.
	call := i.call(func() int64 { return int64(8 * between(rnd, 1, 40)) })
	return mustLoad(i.name, i.guest(asm.Loop(call, asm.Br(0))).Bytes(), byFuel)
}

// wildNumbers are addresses and lengths at the edges.
var wildNumbers = [...]int64{0, 1, 7, 8, 63, 64, 512, 65_535, 65_536, 262_143, 262_144, math.MaxInt32, math.MinInt32, -1, -8, -64, -65_536, math.MaxInt64, math.MinInt64}

func importArguments(rnd *rand.Rand, _ [][]byte) Specimen {
	i := anyImport(rnd)
	s := mustLoad(i.name, i.guest(i.call(func() int64 { return wildNumbers[rnd.IntN(len(wildNumbers))] })).Bytes())
	// What an import writes into the frame is the guest's own doing; it must end in some known way.
	s.Want.Faults = []string{byResult, "bad_import_argument", byBounds, byFuel, "unwritten", "out_flags", "nan"}
	return s
}

func traps(rnd *rand.Rand, _ [][]byte) Specimen {
	far := int32(-1 - rnd.Int32N(1<<30))
	rows := []struct {
		reason string
		code   asm.Code
	}{
		{"unreachable", asm.Op(asm.Unreachable)},
		{byBounds, asm.Cat(asm.I32(far), asm.Load32(uint64(rnd.Uint32())), asm.Op(asm.Drop))},
		{byBounds, asm.Cat(asm.I32(far), asm.F64(1), asm.StoreF64(uint64(rnd.Uint32())))},
		{byBounds, asm.Cat(asm.I32(4<<16-7), asm.I64(1), asm.StoreI64(0))},
		{byBounds, asm.Cat(asm.I32(far), asm.Op(0xfd, 0, 4, 0, asm.Drop))}, // v128.load
		{byBounds, asm.Cat(asm.I32(far), asm.I32(0), asm.I32(64), asm.Op(0xfc, 11, 0))},
		{"divide_by_zero", asm.Cat(asm.I32(rnd.Int32()), asm.I32(0), asm.Op(oneOf[byte](rnd, 0x6d, 0x6e, 0x6f, 0x70), asm.Drop))},
		{"divide_by_zero", asm.Cat(asm.I64(rnd.Int64()), asm.I64(0), asm.Op(oneOf[byte](rnd, 0x7f, 0x80, 0x81, 0x82), asm.Drop))},
		{"integer_overflow", asm.Cat(asm.I32(math.MinInt32), asm.I32(-1), asm.Op(0x6d, asm.Drop))},
		{"integer_overflow", asm.Cat(asm.F64(1e300), asm.Op(0xaa, asm.Drop))}, // i32.trunc_f64_s
		{"conversion", asm.Cat(asm.F64(math.NaN()), asm.Op(0xaa, asm.Drop))},
		{"table_access", asm.Cat(asm.I32(rnd.Int32()|8), asm.Op(0x11, 0, 0))},
		{"table_access", asm.Cat(asm.I32(1), asm.Op(0x11, 0, 0))}, // null
		{"indirect_call", asm.Cat(asm.I32(0), asm.Op(0x11, 0, 0))},
	}
	row := rows[rnd.IntN(len(rows))]
	g := sparedGuest(row.code, "")
	g.Before = func(m *asm.Module) {
		m.Type("", "")
		m.Table(8, 8)
		m.Elements(m.Func("i", "i", "", asm.I32(0)))
	}
	return mustLoad(fmt.Sprintf("%s by %x", row.reason, []byte(row.code)), g.Bytes(), row.reason)
}

func badResults(rnd *rand.Rand, _ [][]byte) Specimen {
	give := func(score asm.Code) asm.Code { return asm.Cat(score, asm.Op(asm.Return)) }
	rows := []struct {
		reason string
		code   asm.Code
	}{
		{"unwritten", give(asm.I32(0))},
		{"guest_error", give(asm.I32(-1 - rnd.Int32N(math.MaxInt32)))},
		{"bad_code", give(asm.I32(2 + rnd.Int32N(math.MaxInt32-1)))},
		{"out_flags", asm.Cat(asm.Get(0), asm.I32(2<<rnd.IntN(30)), asm.Store32(abi.OffOutFlags))},
		{"nan", give(asm.Constant(asm.F64(math.NaN())))},
		{"nan", give(asm.Constant(asm.F64(math.Inf(oneOf(rnd, 1, -1)))))},
		{"nan", give(asm.Constant(asm.F64(math.Float64frombits(0x7ff0000000000000 | rnd.Uint64N(1<<51) + 1))))},
		{"range", give(asm.Constant(asm.F64(oneOf(rnd, 1.5, 1e308, math.SmallestNonzeroFloat64))))},
		{byResult, give(asm.I32(1))}, // abstains
	}
	if rnd.IntN(len(rows)+1) == 0 { // the first row alone: enough for a table of one
		first := give(asm.Cat(asm.Get(0), asm.Get(0), asm.Load32(abi.OffScores), asm.Op(asm.I32Add), asm.F64(1), asm.StoreF64(0), asm.I32(0)))
		return mustLoad("only the first row written", sparedGuest(first, "").Bytes(), byResult, "unwritten")
	}
	row := rows[rnd.IntN(len(rows))]
	extra := `,"score_range":{"min":-1e300,"max":0}`
	return mustLoad(fmt.Sprintf("%q by %.40x", row.reason, []byte(row.code)), sparedGuest(row.code, extra).Bytes(), row.reason)
}

// frameWritten writes right scores and then over what is the host's: the header
// but the out-flags, or all memory behind the frame.
func frameWritten(rnd *rand.Rand, _ [][]byte) Specimen {
	code := asm.Column(0, asm.Op(asm.F64Neg))
	code = code[:len(code)-len(asm.I32(0))]
	name := oneOf(rnd, "header", "behind it")
	if name == "header" {
		for off := uint64(0); off < 128; off += 4 {
			if off != abi.OffOutFlags {
				code = append(code, asm.Cat(asm.Get(0), asm.I32(int32(rnd.Uint32())), asm.Store32(off))...)
			}
		}
	} else {
		at := int32(1024 + 64<<10) // the frame of one column is 24 KiB
		code = append(code, asm.Cat(asm.I32(at), asm.I32(rnd.Int32()), asm.I32(4<<16-at), asm.Op(0xfc, 11, 0))...)
	}
	return mustLoad(name, sparedGuest(asm.Cat(code, asm.I32(0), asm.Op(asm.Return)), "").Bytes(), byResult)
}

func lastErrors(rnd *rand.Rand, _ [][]byte) Specimen {
	g := sparedGuest(asm.Cat(asm.I32(-1), asm.Op(asm.Return)), "")
	name := oneOf(rnd, "text", "wild", "endless", "trap")
	switch name {
	case "text":
		g.LastError = asm.I64(512<<32 | 400)
		text := make([]byte, 400)
		for i := range text {
			text[i] = byte(rnd.Uint32())
		}
		g.After = func(m *asm.Module) { m.Data(512, text) }
	case "wild":
		g.LastError = asm.I64(int64(rnd.Uint64()))
	case "endless":
		g.LastError = asm.Cat(asm.Loop(asm.Br(0)), asm.Op(asm.Unreachable))
	default:
		g.LastError = asm.Op(asm.Unreachable)
	}
	return mustLoad(name, g.Bytes(), "guest_error")
}
