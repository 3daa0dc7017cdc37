package meter_test

import (
	"math/rand/v2"
	"strings"
	"testing"
)

// plainModule is a module with the exports that differ looks at and one function f0 (i32) -> (i32).
func plainModule(code ...any) []byte {
	b := &builder{}
	v, nothing := b.typ(one, one), b.typ(nil, one)
	b.imp("smith", "mix", b.typ([]byte{i64}, []byte{i64}))
	b.export("f0", 0, b.fn(v, nil, code...))
	b.export("global0", 0, b.fn(nothing, nil, 0x23, 0))
	b.export("size", 0, b.fn(nothing, nil, 0xfc, 16, 0))
	b.export("null", 0, b.fn(nothing, nil, 0x41, 0))
	b.globals = [][]byte{cat(i32, 1, i32c(5), 0x0b), cat(i32, 1, i32c(0), 0x0b)}
	b.export("steps", 3, 1)
	b.memory(1, 2)
	b.export("memory", 2, 0)
	b.table(funcref, 2, 9)
	return b.bytes()
}

func TestDifferFindsEachDifference(t *testing.T) {
	rigs := newRigs(t)
	add := func(n int32, more ...any) []byte { return plainModule(cat(more...), get(0), i32c(n), 0x6a) }
	tell := func(n int64) []byte { return add(1, i64c(n), 0x10, 0, 0x1a) }
	forbidden := add(1, 0xd0, funcref, i32c(70_000), 0xfc, 15, 0, 0x1a) // the original answers -1
	cases := []struct {
		name             string
		original, other  []byte
		want             string
		metered, checked bool // which of the forms is the other's
	}{
		{"none", add(1), add(1), "", true, true},
		{"a result", add(1), add(2), "Results", true, true},
		{"a result where there are more checks", add(1), add(2), "compiler, metered true", false, true},
		{"a trap", add(1), add(1, 0x00), "Trap", true, true},
		{"another trap", add(1, 0x00), add(1, i32c(0), i32c(0), 0x6d, 0x1a), "integer divide by zero", true, true},
		{"a global", add(1), add(1, i32c(6), 0x24, 0), "Globals", true, true},
		{"the memory", add(1), add(1, i32c(9), i32c(9), 0x3a, 0, 0), "Memory", true, true},
		{"the size of the memory", add(1), add(1, i32c(1), 0x40, 0, 0x1a), "Pages", true, true},
		{"the size of the table", add(1), add(1, 0xd0, funcref, i32c(1), 0xfc, 15, 0, 0x1a), "Table", true, true},
		{"what an import is told", tell(1), tell(2), "Imports", true, true},
		{"a price", add(1), add(1, 0x01), "call 0 used 4 fuel on interpreter and 5", false, true},
		{"an operation that is never granted", forbidden, forbidden, outOfBounds, true, true},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			f, err := rewriteForms(tc.original)
			if err != nil {
				t.Fatal(err)
			}
			other, err := rewriteForms(tc.other)
			if err != nil {
				t.Fatal(err)
			}
			if tc.metered {
				f.metered = other.metered
			}
			if tc.checked {
				f.checked = other.checked
			}
			diff := f.differ(rigs, rand.New(rand.NewPCG(1, 1)))
			if tc.want == "" && diff != "" || !strings.Contains(diff, tc.want) {
				t.Errorf("got %q, want something about %q", diff, tc.want)
			}
		})
	}
}
