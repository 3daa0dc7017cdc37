package hostiletest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"

	asm "github.com/routerd/routerd/host/wasmtest"
)

// Steps and codes of refusals, as the ABI names them.
const (
	stepSize     = "size"
	stepWalk     = "section walk"
	stepBodies   = "function bodies"
	stepRewrite  = "fuel rewrite"
	stepManifest = "manifest"
	stepImports  = "imports"
	stepExports  = "exports"
	stepValidate = "validate"
	stepStart    = "start"
	stepConfig   = "configure"
	stepBind     = "bind"
	stepSelfTest = "self-test"
)

// Bound is one static limit of the ABI with modules that are right at it.
type Bound struct {
	Name       string
	Most       int    // the largest accepted value, written down here once more on purpose
	Step, Code string // how a larger one is refused
	// Module is a policy module that is as large as n in this respect and small in all others. n is at
	// least a few dozen.
	Module func(n int) []byte

	far  int // the largest value that is worth a try
	also func(n int) []Refusal
}

// near makes a specimen around the limit: at it, below it, above it, far above
// it.
func (b Bound) near(rnd *rand.Rand) Specimen {
	n := b.Most
	switch rnd.IntN(6) {
	case 0:
		n = b.Most - between(rnd, 1, max(1, b.Most/8))
	case 1, 2:
		n = b.Most + 1
	case 3:
		n = b.Most + between(rnd, 1, b.Most)
	case 4:
		n = between(rnd, b.Most+1, max(b.Most+1, b.far))
	}
	if n > b.Most {
		return mustRefuse(fmt.Sprint(n), b.Module(n), b.Step, b.Code, "")
	}
	s := mustLoad(fmt.Sprint(n), b.Module(n))
	s.Want.Also = append(b.also(n), compileLimit()...) // what is large takes long to compile
	return s
}

// Bounds lists the static limits. The caller owns the slice.
func Bounds() []Bound {
	limit := func(name string, most, far int, step string, module func(n int) []byte) Bound {
		return Bound{Name: name, Most: most, Step: step, Code: "E_LIMIT", Module: module, far: far, also: func(int) []Refusal { return nil }}
	}
	size := limit("module bytes", 8<<20, 12<<20, stepSize, ofSize)
	size.Code = "E_SIZE"
	manifest := limit("manifest bytes", 64<<10, 1<<20, stepWalk, func(n int) []byte {
		text := `{"abi":"routerd.policy/v1","name":"test","version":"1.0.0","kinds":["scorer"],"columns":[{"name":"load.active_requests"}]}`
		return asm.Guest{Manifest: text + strings.Repeat(" ", n-len(text))}.Bytes()
	})
	manifest.Code = "E_MANIFEST"
	return append([]Bound{
		size, manifest,
		limit("custom sections", 64, 5000, stepWalk, func(n int) []byte {
			b := plainGuest()
			for range n - 1 {
				b = append(b, idCustom, 3, 2, 'x', 'y')
			}
			return b
		}),
		limit("types", 1024, 100_000, stepWalk, func(n int) []byte {
			return appendEntries(plainGuest(), idType, n-entryCount(plainGuest(), idType), 0x60, 0, 0)
		}),
		limit("parameters", 64, 2000, stepWalk, func(n int) []byte {
			return appendEntries(plainGuest(), idType, 1, funcType(n, 0)...)
		}),
		limit("results", 16, 2000, stepWalk, func(n int) []byte {
			return appendEntries(plainGuest(), idType, 1, funcType(0, n)...)
		}),
		limit("values of all types", 16_384, 60_000, stepWalk, func(n int) []byte {
			b, left := plainGuest(), n-typeValues
			b = appendEntries(b, idType, left/64, funcType(64, 0)...)
			return appendEntries(b, idType, 1, funcType(left%64, 0)...)
		}),
		limit("imports", 64, 5000, stepWalk, func(n int) []byte {
			return asm.Guest{Imports: slicesOf(n, [4]string{"wasi_snapshot_preview1", "sched_yield", "", "i"})}.Bytes()
		}),
		limit("exports", 256, 5000, stepWalk, func(n int) []byte {
			return asm.Guest{After: func(m *asm.Module) {
				for i := range n - 6 {
					m.Export(fmt.Sprintf("more %d", i), 0)
				}
			}}.Bytes()
		}),
		limit("name bytes", 256, 1<<20, stepWalk, func(n int) []byte {
			return asm.Guest{After: func(m *asm.Module) { m.Export(strings.Repeat("n", n), 0) }}.Bytes()
		}),
		limit("functions", 20_000, 300_000, stepWalk, func(n int) []byte {
			return appendVoid(plainGuest(), n-entryCount(plainGuest(), idFunction), 0, 0x0b)
		}),
		limit("globals", 1024, 100_000, stepWalk, func(n int) []byte {
			return appendEntries(plainGuest(), idGlobal, n-1, 0x7e, 1, 0x42, 0, 0x0b)
		}),
	}, append(bodyBounds(limit), dataBounds(limit)...)...)
}

type limitOf func(name string, most, far int, step string, module func(n int) []byte) Bound

// bodyBounds are the limits of a function body.
func bodyBounds(limit limitOf) []Bound {
	return []Bound{
		limit("body bytes", 64<<10, 1<<20, stepWalk, func(n int) []byte {
			return appendVoid(plainGuest(), 1, append(append([]byte{0}, bytes.Repeat([]byte{0x01}, n-2)...), 0x0b)...)
		}),
		limit("locals of a function", 1024, 1<<31, stepBodies, func(n int) []byte {
			return appendVoid(plainGuest(), 1, append(append([]byte{1}, asm.Uleb(uint64(n))...), 0x7b, 0x0b)...)
		}),
		limit("locals of all functions", 524_288, 1_000_000, stepBodies, func(n int) []byte {
			b, left := plainGuest(), n-ownLocals
			body := func(n int) []byte { return append(append([]byte{1}, asm.Uleb(uint64(n))...), 0x7f, 0x0b) }
			b = appendVoid(b, left/1024, body(1024)...)
			return appendVoid(b, 1, body(left%1024)...)
		}),
		limit("nesting", 1024, 20_000, stepBodies, func(n int) []byte {
			return appendVoid(plainGuest(), 1, asm.Cat([]byte{0}, bytes.Repeat([]byte{0x02, 0x40}, n), bytes.Repeat([]byte{0x0b}, n+1))...)
		}),
		limit("loops", 1024, 20_000, stepBodies, func(n int) []byte {
			return appendVoid(plainGuest(), 1, asm.Cat([]byte{0}, bytes.Repeat([]byte{0x03, 0x40, 0x0b}, n), asm.Op(0x0b))...)
		}),
		limit("br_table", 2048, 30_000, stepBodies, func(n int) []byte {
			return appendVoid(plainGuest(), 1, asm.Cat([]byte{0}, asm.I32(7), asm.Op(0x0e), asm.Uleb(uint64(n)), make([]byte, n+1), asm.Op(0x0b))...)
		}),
		limit("block type values", 16, 32, stepBodies, func(n int) []byte {
			t := entryCount(plainGuest(), idType)
			b := appendEntries(plainGuest(), idType, 1, funcType(n/2, n-n/2)...)
			return appendVoid(b, 1, asm.Cat([]byte{0}, bytes.Repeat([]byte{0x41, 0}, n/2), asm.Op(0x02), asm.Sleb(int64(t)),
				bytes.Repeat([]byte{0x1a}, n/2), bytes.Repeat([]byte{0x41, 0}, n-n/2), asm.Op(0x0b),
				bytes.Repeat([]byte{0x1a}, n-n/2), asm.Op(0x0b))...)
		}),
	}
}

// dataBounds are the limits of tables, segments and memory.
func dataBounds(limit limitOf) []Bound {
	declared := limit("memory pages, declared", 1024, 65_536, stepManifest, func(n int) []byte {
		return asm.Guest{Pages: uint64(n), Extra: `,"limits":{"memory_pages":1024}`}.Bytes()
	})
	declared.also = shortOfMemory
	return []Bound{
		declared,
		limit("table entries", 65_536, 1<<32-1, stepWalk, func(n int) []byte {
			return asm.Guest{Before: func(m *asm.Module) { m.Table(uint64(n), int64(n)) }}.Bytes()
		}),
		limit("table maximum", 65_536, 1<<32-1, stepWalk, func(n int) []byte {
			return asm.Guest{Before: func(m *asm.Module) { m.Table(0, int64(n)) }}.Bytes()
		}),
		limit("element segments", 1024, 50_000, stepWalk, func(n int) []byte {
			return appendEntries(tabled(16), idElement, n, 0, 0x41, 0, 0x0b, 1, 0)
		}),
		limit("element entries", 65_536, 1_000_000, stepWalk, func(n int) []byte {
			entry := asm.Cat(asm.Op(0, 0x41, 0, 0x0b), asm.Uleb(uint64(n/2)), make([]byte, n/2))
			return appendEntries(appendEntries(tabled(65_536), idElement, 1, entry...), idElement, 1,
				asm.Cat(asm.Op(1, 0), asm.Uleb(uint64(n-n/2)), make([]byte, n-n/2))...)
		}),
		limit("data segments", 100_000, 400_000, stepWalk, func(n int) []byte {
			return appendEntries(plainGuest(), idData, n, 0, 0x41, 0, 0x0b, 0)
		}),
		limit("data bytes", 4<<20, 7<<20, stepWalk, func(n int) []byte {
			entry := asm.Cat(asm.Op(1), asm.Uleb(uint64(n/2)), make([]byte, n/2))
			return appendEntries(appendEntries(plainGuest(), idData, 1, entry...), idData, 1,
				asm.Cat(asm.Op(1), asm.Uleb(uint64(n-n/2)), make([]byte, n-n/2))...)
		}),
		limit("memory pages, not declared", 64, 65_536, stepManifest, func(n int) []byte { return asm.Guest{Pages: uint64(n)}.Bytes() }),
	}
}

// What the plain guest has of its own.
const (
	typeValues = 11 // parameters and results of its types
	ownLocals  = 8
)

// plainGuest is a module that does what a policy should.
func plainGuest() []byte { return asm.Guest{}.Bytes() }

// tabled is a plain module with a table.
func tabled(n int) []byte {
	return asm.Guest{Before: func(m *asm.Module) { m.Table(uint64(n), int64(n)) }}.Bytes()
}

// funcType is an entry of the type section with i32 values.
func funcType(params, results int) []byte {
	return asm.Cat(asm.Op(0x60), asm.Uleb(uint64(params)), bytes.Repeat([]byte{0x7f}, params),
		asm.Uleb(uint64(results)), bytes.Repeat([]byte{0x7f}, results))
}

func slicesOf[T any](n int, v T) []T {
	out := make([]T, n)
	for i := range out {
		out[i] = v
	}
	return out
}

// ofSize is a module of n bytes, most of them in a custom section.
func ofSize(n int) []byte {
	b := plainGuest()
	room := n - len(b) - 1
	for width := 1; ; width++ { // of the section's length
		if size := room - width; len(asm.Uleb(uint64(size))) == width {
			return appendCustom(b, "padding", make([]byte, size-len(withName("padding"))))
		}
	}
}
