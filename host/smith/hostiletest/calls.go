package hostiletest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"

	asm "github.com/routerd/routerd/host/wasmtest"
	"github.com/routerd/routerd/plugins/abi"
)

// callFamilies pass the load and go wrong in a call.
func callFamilies() []family {
	return []family{
		{"endless loop", endlessLoop},
		{"recursion", recursion},
		{"cold-path locals", coldPath},
		{"exponential calls", exponentialCalls},
		{"bulk memory", bulkMemory},
		{"table operations", tableOperations},
		{"pointer chase", pointerChase},
		{"page touching", pageTouching},
		{"host-call loop", hostCallLoop},
		{"import arguments", importArguments},
		{"trap", traps},
		{"result that is none", badResults},
		{"frame written over", frameWritten},
		{"last error", lastErrors},
	}
}

// Reasons of faults.
const (
	byFuel   = "fuel"
	byStack  = "stack"
	byBounds = "out_of_bounds"
	byResult = "" // no fault
)

// spared is a Score that is good but for TriggerSeed, when it runs wrong first.
func spared(wrong asm.Code) asm.Code {
	return asm.Cat(
		asm.Get(0), asm.LoadI64(abi.OffSeed), asm.I64(TriggerSeed), asm.Op(0x51), // i64.eq
		asm.If(wrong),
		asm.Column(0, asm.Op(asm.F64Neg)),
	)
}

// sparedGuest is a guest with such a Score; extra are members of its manifest.
func sparedGuest(wrong asm.Code, extra string) asm.Guest {
	return asm.Guest{Score: spared(wrong), ScoreTypes: asm.ColumnTypes, Extra: extra}
}

// fuelOf are the manifest's limits.
func fuelOf(base, pages int) string {
	return fmt.Sprintf(`,"limits":{"fuel_base":%d,"memory_pages":%d}`, base, pages)
}

func endlessLoop(rnd *rand.Rand, _ [][]byte) Specimen {
	nop := asm.Op(repeatByte(rnd.IntN(2000), 0x01)...)
	depth := between(rnd, 1, 200)
	var code asm.Code
	name := ""
	switch rnd.IntN(5) {
	case 0:
		name, code = "branch", asm.Loop(nop, asm.Br(0))
	case 1:
		name, code = "branch under a condition", asm.Loop(nop, asm.I32(1), asm.BrIf(0), asm.Br(0))
	case 2:
		name, code = "br_table", asm.Loop(nop, asm.I32(rnd.Int32()), asm.Op(0x0e, 3, 0, 0, 0, 0))
	case 3: // each round enters all loops anew
		name, code = "nested", asm.Br(uint64(depth-1))
		for range depth {
			code = asm.Loop(code)
		}
	default: // the value is carried around by a loop with a parameter
		name = "with a result"
		code = asm.Cat(asm.Op(0x03, 0x7f), nop, asm.Br(0), asm.Op(0x0b, asm.Drop))
	}
	base := oneOf(rnd, 100_000, 1_000_000, 10_000_000, 1_000_000_000)
	return mustLoad(fmt.Sprintf("%s, %d fuel", name, base), sparedGuest(code, fuelOf(base, 64)).Bytes(), byFuel)
}

func recursion(rnd *rand.Rand, _ [][]byte) Specimen {
	ring, params := between(rnd, 1, 50), between(rnd, 0, 64)
	indirect := rnd.IntN(2) == 0
	types := strings.Repeat(oneOf(rnd, "i", "l", "d", "v"), params)
	g := sparedGuest(nil, fuelOf(oneOf(rnd, 100_000, 10_000_000), 64))
	g.Before = func(m *asm.Module) {
		t := m.Type(types, "")
		var args asm.Code
		for i := range params {
			args = append(args, asm.Get(uint64(i))...)
		}
		var all []uint64
		for i := range ring {
			next := uint64((i + 1) % ring)
			call := asm.Call(next)
			if indirect {
				call = asm.Cat(asm.I32(int32(next)), asm.Op(0x11), asm.Uleb(t), asm.Op(0))
			}
			all = append(all, m.Func(types, "", "", args, call))
		}
		if indirect {
			m.Table(uint64(ring), -1)
			m.Elements(all...)
		}
	}
	var zero asm.Code
	for range params {
		zero = append(zero, map[byte]asm.Code{'i': asm.I32(0), 'l': asm.I64(0), 'd': asm.F64(0), 'v': asm.Cat(asm.I32(1), asm.Op(0xfd, 17))}[types[0]]...)
	}
	g.Score = spared(asm.Cat(zero, asm.Call(0)))
	return mustLoad(fmt.Sprintf("ring of %d, %d parameters %.1s, indirect %t", ring, params, types, indirect), g.Bytes(), byFuel, byStack)
}

// coldPath recurses with frames that are as large as a path that is never taken.
func coldPath(rnd *rand.Rand, _ [][]byte) Specimen {
	values := between(rnd, 10, 9000)
	cold := asm.Code{}
	for range values {
		cold = append(cold, asm.Cat(asm.Get(0), asm.Op(0xfd, 0x0f))...) // i8x16.splat
	}
	cold = append(cold, asm.Cat(asm.I32(0), asm.Call(0))...)
	for range values - 1 {
		cold = append(cold, 0xfd, 0x50) // v128.or
	}
	cold = append(cold, asm.Cat(asm.Op(0xfd, 0x53), asm.SetGlobal(0))...) // v128.any_true
	locals := strings.Repeat("v", rnd.IntN(1024))
	g := sparedGuest(asm.Cat(asm.I32(1<<30), asm.Call(0)), fuelOf(oneOf(rnd, 100_000, 10_000_000), 64))
	g.Before = func(m *asm.Module) {
		m.Func("i", "", locals, asm.Get(0), asm.I32(-1), asm.Op(asm.I32Eq), asm.If(cold), asm.Get(0), asm.I32(1), asm.Op(asm.I32Sub), asm.Call(0))
	}
	return mustLoad(fmt.Sprintf("%d values, %d locals", values, len(locals)), g.Bytes(), byFuel, byStack)
}

func exponentialCalls(rnd *rand.Rand, _ [][]byte) Specimen {
	depth, fan := between(rnd, 25, 200), between(rnd, 2, 6)
	g := sparedGuest(asm.Call(0), fuelOf(oneOf(rnd, 100_000, 10_000_000), 64))
	g.Before = func(m *asm.Module) {
		for i := range depth {
			var code asm.Code
			for range fan {
				if i < depth-1 {
					code = append(code, asm.Call(m.Next()+1)...)
				}
			}
			m.Func("", "", "", code)
		}
	}
	return mustLoad(fmt.Sprintf("%d deep, %d calls each", depth, fan), g.Bytes(), byFuel)
}

// bulkMemory does one operation, or the same for ever, above the first MiB,
// where neither frame nor configuration is.
func bulkMemory(rnd *rand.Rand, _ [][]byte) Specimen {
	const low, pages, most = 1 << 20, 130, 4 << 20
	length := oneOf(rnd, 1, 65_536, most-1, most, most+1, 7<<20, math.MaxInt32, -1)
	to, from := int32(low+rnd.IntN(2<<20)), int32(low+rnd.IntN(2<<20))
	op := oneOf(rnd, 10, 11) // copy, fill
	code := asm.Cat(asm.I32(to), asm.I32(from), asm.I32(int32(length)), asm.Op(0xfc, byte(op), 0))
	if op == 10 {
		code = append(code, 0)
	}
	fault, name := byResult, "once"
	switch {
	case uint32(length) > most:
		fault = byFuel
	case rnd.IntN(2) == 0:
		code, fault, name = asm.Loop(code, asm.Br(0)), byFuel, "for ever"
	}
	g := sparedGuest(code, fuelOf(2_000_000, pages))
	g.Pages = pages
	faults := []string{fault, "deadline"} // on a crowded machine 4 MiB of fresh memory can take 10 ms
	return mustLoad(fmt.Sprintf("0xfc %d of %d bytes, %s", op, uint32(length), name), g.Bytes(), faults...)
}

func tableOperations(rnd *rand.Rand, _ [][]byte) Specimen {
	entries := oneOf(rnd, 8, 1000, 65_536)
	null, n := asm.Op(0xd0, 0x70), asm.I32(int32(rnd.IntN(entries)))
	// table.fill is 17, table.grow 15, table.copy 14.
	var code asm.Code
	name := oneOf(rnd, "fill", "grow", "copy", "set")
	switch name {
	case "fill":
		code = asm.Cat(asm.I32(0), null, n, asm.Op(0xfc, 17, 0))
	case "grow":
		code = asm.Cat(null, asm.I32(int32(between(rnd, 1, 70_000))), asm.Op(0xfc, 15, 0, asm.Drop))
	case "copy":
		code = asm.Cat(asm.I32(0), asm.I32(0), n, asm.Op(0xfc, 14, 0, 0))
	default:
		code = asm.Cat(n, null, asm.Op(0x26, 0))
	}
	g := sparedGuest(asm.Loop(code, asm.Br(0)), fuelOf(2_000_000, 64))
	g.Before = func(m *asm.Module) { m.Table(uint64(entries), oneOf(rnd, int64(-1), 65_536)) }
	return mustLoad(fmt.Sprintf("table.%s, %d entries", name, entries), g.Bytes(), byFuel)
}

// pointerChase loads from addresses that hang on the value before, so that no
// cache helps.
func pointerChase(rnd *rand.Rand, _ [][]byte) Specimen {
	pages := oneOf(rnd, 4, 64, 256, 1024)
	mask := int32(pages<<16 - 8)
	g := sparedGuest(asm.Loop(
		asm.Get(1), asm.I32(1664525), asm.Op(asm.I32Mul), asm.I32(1013904223), asm.Op(asm.I32Add), asm.Set(1),
		asm.Get(1), asm.I32(mask), asm.Op(asm.I32And), asm.Load32(0), asm.Get(1), asm.Op(asm.I32Add), asm.Set(1), asm.Br(0),
	), fuelOf(oneOf(rnd, 100_000, 10_000_000), pages))
	g.Pages = uint64(pages)
	s := mustLoad(fmt.Sprintf("over %d pages", pages), g.Bytes(), byFuel)
	s.Want.Also = shortOfMemory(pages)
	return s
}

// pageTouching grows in steps as long as it can and writes to the new memory,
// every so many bytes, once or for ever; or it does not even write.
func pageTouching(rnd *rand.Rand, _ [][]byte) Specimen {
	pages, step := oneOf(rnd, 8, 64, 1024, 1024), between(rnd, 1, 80)
	stride := oneOf(rnd, 0, 0, 64, 4096, 65_536)
	grow := asm.Block(asm.Loop(asm.I32(int32(step)), asm.Op(0x40, 0), asm.I32(-1), asm.Op(asm.I32Eq), asm.BrIf(1), asm.Br(0)))
	touch := asm.Cat(
		asm.Op(0x3f, 0), asm.I32(16), asm.Op(asm.I32Shl), asm.Set(1), // the size in bytes
		asm.I32(2<<16), asm.Set(2), // above the frame
		asm.Loop(asm.Get(2), asm.I32(-1), asm.Store32(0), asm.Get(2), asm.I32(int32(stride)), asm.Op(asm.I32Add), asm.Tee(2), asm.Get(1), asm.Op(asm.I32LtU), asm.BrIf(0)),
	)
	name := fmt.Sprintf("%d pages in steps of %d, every %d bytes", pages, step, stride)
	g := sparedGuest(grow, fuelOf(9_000_000, pages))
	g.Pages = 4
	switch {
	case stride == 0:
		return mustLoad(name, g.Bytes(), byResult, "deadline")
	case rnd.IntN(2) == 0:
		g.Score = spared(asm.Cat(grow, asm.Loop(touch, asm.Br(0))))
		return mustLoad(name+", for ever", g.Bytes(), byFuel)
	}
	g.Score = spared(asm.Cat(grow, touch))
	// Each page is a page fault of the machine's.
	return mustLoad(name, g.Bytes(), byResult, "deadline", byFuel)
}

// repeatByte is n times the same byte.
func repeatByte(n int, b byte) []byte { return slicesOf(n, b) }
