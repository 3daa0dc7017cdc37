package hostiletest

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	asm "github.com/routerd/routerd/host/wasmtest"
)

// byteFamilies are damaged modules and bombs for the compiler.
func byteFamilies() []family {
	return []family{
		{"random bytes", randomBytes},
		{"byte flips of a guest", flipGuest},
		{"byte flips of an example", flipExample},
		{"cut and joined", spliced},
		{"random instructions", randomInstructions},
		{"compile bomb", compileBomb},
		{"rewrite bomb", rewriteBomb},
	}
}

func anything(name string, b []byte) Specimen {
	return Specimen{Name: name, Bytes: b, Want: Want{Any: true, Wild: true}}
}

func randomBytes(rnd *rand.Rand, _ [][]byte) Specimen {
	b := make([]byte, rnd.IntN(4096))
	for i := range b {
		b[i] = byte(rnd.Uint32())
	}
	if rnd.IntN(2) == 0 {
		b = append([]byte(moduleHeader), b...)
	}
	if len(b) >= 4 && b[3] == 'm' && rnd.IntN(2) == 0 {
		b = append(b, plainGuest()[len(moduleHeader):]...)
	}
	s := anything(named("bytes", len(b)), b)
	if len(b) < 100 {
		s.Want = Want{Refused: []Refusal{{stepWalk, "E_PARSE", ""}, {stepWalk, "E_LIMIT", ""}, {stepManifest, "E_MANIFEST", ""}}}
	}
	return s
}

// flip changes a few bytes of b from lo on, in place: bits, whole bytes, values
// at the edges of LEB128.
func flip(rnd *rand.Rand, b []byte, lo, hi int) []byte {
	for range 1 << rnd.IntN(5) {
		i := between(rnd, lo, hi-1)
		switch rnd.IntN(3) {
		case 0:
			b[i] ^= 1 << rnd.IntN(8)
		case 1:
			b[i] = byte(rnd.Uint32())
		default:
			b[i] = oneOf[byte](rnd, 0, 1, 0x0b, 0x40, 0x7f, 0x80, 0xff, 0xfc, 0xfd)
		}
	}
	return b
}

// someGuest is a module of another family.
func someGuest(rnd *rand.Rand) []byte {
	makers := slices.Concat(callFamilies(), setUpFamilies())
	for range 20 {
		if b := makers[rnd.IntN(len(makers))].make(rnd, nil).Bytes; len(b) > len(moduleHeader) && len(b) < 8192 {
			return b
		}
	}
	return plainGuest()
}

func flipGuest(rnd *rand.Rand, _ [][]byte) Specimen {
	b := slices.Clone(someGuest(rnd))
	return anything(named("bytes", len(b)), flip(rnd, b, len(moduleHeader), len(b)))
}

// flipExample damages a real module: mostly in the small sections, which decide
// most and cost no compiling, now and then anywhere.
func flipExample(rnd *rand.Rand, examples [][]byte) Specimen {
	if len(examples) == 0 {
		return flipGuest(rnd, nil)
	}
	b := slices.Clone(examples[rnd.IntN(len(examples))])
	if rnd.IntN(4) == 0 {
		return anything("anywhere", flip(rnd, b, len(moduleHeader), len(b)))
	}
	if !wellFormed(b) { // lengths padded by a linker
		return anything("at the beginning", flip(rnd, b, len(moduleHeader), min(len(b), 4096)))
	}
	at := len(moduleHeader)
	small := []int{0, at} // where small sections begin and end
	for _, p := range cutModule(b) {
		size := 1 + len(asm.Uleb(uint64(len(p.body)))) + len(p.body)
		if len(p.body) < 16_384 {
			small = append(small, at, at+size)
		}
		at += size
	}
	i := 2 * rnd.IntN(len(small)/2)
	return anything(fmt.Sprintf("section at %d", small[i]), flip(rnd, b, small[i], small[i+1]))
}

func spliced(rnd *rand.Rand, _ [][]byte) Specimen {
	a, b := cutSafely(someGuest(rnd)), cutSafely(someGuest(rnd))
	if rnd.IntN(2) == 0 { // sections of both, in order
		for i := range a {
			for _, p := range b {
				if p.id == a[i].id && rnd.IntN(2) == 0 {
					a[i] = p
				}
			}
		}
		return anything("sections of two", joinModule(a))
	}
	x, y := joinModule(a), joinModule(b)
	return anything("bytes of two", append(x[:rnd.IntN(len(x))], y[rnd.IntN(len(y)):]...))
}

// cutSafely is cutModule for modules of other families, some of which are not
// well-formed.
func cutSafely(wasm []byte) []part {
	if !wellFormed(wasm) {
		return cutModule(plainGuest())
	}
	return cutModule(wasm)
}

// wellFormed tells whether sections with short lengths fill the module.
func wellFormed(wasm []byte) bool {
	for at := len(moduleHeader); at < len(wasm); {
		size, n := binary.Uvarint(wasm[at+1:])
		if n <= 0 || size > uint64(len(wasm)-at-1-n) || len(asm.Uleb(size)) != n {
			return false
		}
		at += 1 + n + int(size)
	}
	return len(wasm) >= len(moduleHeader)
}

// randomInstructions are bodies of opcodes at random with the immediates that
// bytes at random give.
func randomInstructions(rnd *rand.Rand, _ [][]byte) Specimen {
	b := plainGuest()
	for range between(rnd, 1, 20) {
		body := []byte{1, byte(between(rnd, 1, 60)), oneOf[byte](rnd, 0x7f, 0x7e, 0x7d, 0x7c, 0x7b)}
		for range rnd.IntN(60) {
			switch rnd.IntN(4) {
			case 0:
				body = append(body, asm.I32(rnd.Int32N(1<<20))...)
			case 1:
				body = append(body, asm.Get(uint64(rnd.IntN(4)))...)
			case 2:
				body = append(body, byte(between(rnd, 0x45, 0xc4)))
			default:
				body = append(body, byte(rnd.IntN(0xd3)), byte(rnd.IntN(3)))
			}
		}
		if rnd.IntN(2) == 0 {
			body = append(body, asm.Unreachable) // code behind it type-checks more often
		}
		b = appendVoid(b, 1, append(body, 0x0b)...)
	}
	return anything(named("bytes", len(b)), b)
}

// compileBomb is code near the static limits that compilers take long for.
func compileBomb(rnd *rand.Rand, _ [][]byte) Specimen {
	if rnd.IntN(6) == 0 {
		return manyLoops(rnd)
	}
	functions := oneOf(rnd, 1, 1, 2, 4, 8)
	nest := between(rnd, 200, 1000)
	locals := strings.Repeat("i", between(rnd, 1, 64))
	var body asm.Code
	name := oneOf(rnd, "branches out of nested blocks", "br_table out of nested blocks", "many live values")
	switch name {
	case "branches out of nested blocks":
		for range nest {
			body = asm.Block(body, asm.Get(0), asm.BrIf(0), asm.Get(0), asm.I32(1), asm.Op(asm.I32Add), asm.Set(0))
		}
	case "br_table out of nested blocks":
		body = asm.Cat(asm.Get(0), asm.Op(0x0e), asm.Uleb(uint64(nest)))
		for i := range nest + 1 {
			body = append(body, asm.Uleb(uint64(i))...)
		}
		for range nest {
			body = asm.Block(body, asm.Get(0), asm.I32(1), asm.Op(asm.I32Add), asm.Set(0))
		}
		body = asm.Block(body)
	default:
		for range 6 * nest {
			body = append(body, asm.Cat(asm.Get(0), asm.Load32(0))...)
		}
		for range 6*nest - 1 {
			body = append(body, asm.I32Add)
		}
		body = append(body, asm.Drop)
	}
	g := asm.Guest{After: func(m *asm.Module) {
		for range functions {
			m.Func("i", "", locals, body)
		}
	}}
	s := mustLoad(fmt.Sprintf("%s, %d functions, %d deep, %d locals", name, functions, nest, len(locals)), g.Bytes())
	s.Want.Also = compileLimit()
	return s
}

// manyLoops are more than a compiler gets through in its time: as many loops in
// each function as there may be, for which it takes time by their square.
func manyLoops(rnd *rand.Rand) Specimen {
	n := between(rnd, 150, 200)
	body := append(append([]byte{0}, strings.Repeat("\x03\x40\x0b", 1024)...), 0x0b)
	s := mustLoad(named("functions full of loops", n), appendVoid(plainGuest(), n, body...))
	s.Want.Also = compileLimit()
	return s
}

// rewriteBomb grows most when it is metered: empty loops, each of which is
// charged and checked.
func rewriteBomb(rnd *rand.Rand, _ [][]byte) Specimen {
	loops, functions := between(rnd, 10, 1000), between(rnd, 1, 4)
	if rnd.IntN(3) == 0 {
		loops = between(rnd, 500, 1000)
		functions = between(rnd, 1_400_000, 2_700_000) / loops
	}
	b := appendVoid(plainGuest(), functions, append(append([]byte{0}, strings.Repeat("\x03\x40\x0b", loops)...), 0x0b)...)
	name := fmt.Sprintf("%d functions of %d loops", functions, loops)
	if functions > 4 {
		return mustRefuse(name, b, stepRewrite, "E_LIMIT", "bodies")
	}
	s := mustLoad(name, b)
	s.Want.Also = compileLimit()
	return s
}
