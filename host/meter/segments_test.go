package meter_test

import (
	"testing"

	"github.com/routerd/routerd/host/meter"
)

// segmented is a module with one page of memory, a table of 4 and two globals: 0 holds at, 1 holds what 0 holds.
func segmented(at int32) *builder {
	b := void(nil)
	b.memory(1, 9)
	b.table(funcref, 4, 90)
	b.globals = [][]byte{cat(i32, 0, i32c(at), 0x0b), cat(i32, 0, 0x23, 0, 0x0b)}
	return b
}

func TestActiveSegmentsThatDoNotFitAreRefusedAsInstantiationWould(t *testing.T) {
	constant := func(at int32) []byte { return cat(i32c(at), 0x0b) }
	first, chain := cat(0x23, 0, 0x0b), cat(0x23, 1, 0x0b)
	data := func(offset []byte, n int) []byte { return cat(0, offset, uleb(uint64(n)), make([]byte, n)) }
	elements := func(offset []byte, n int) []byte { return cat(0, offset, uleb(uint64(n)), make([]byte, n)) }
	for _, tc := range []struct {
		name    string
		at      int32 // in global 0
		segment []byte
		element bool
		item    string // "" fits
	}{
		{name: "data up to the end", segment: data(constant(65_532), 4)},
		{name: "data over the end", segment: data(constant(65_533), 4), item: "active data segment 1: 4 at 65533"},
		{name: "data behind the end", segment: data(constant(65_536), 1), item: "active data segment 1: 1 at 65536"},
		{name: "no data at the end", segment: data(constant(65_536), 0)},
		{name: "no data behind the end", segment: data(constant(65_537), 0), item: "active data segment 1: 0 at 65537"},
		{name: "data where only the maximum reaches", segment: data(constant(5<<16), 1), item: "active data segment 1"},
		{name: "data at -1", segment: data(constant(-1), 1), item: "active data segment 1: 1 at 4294967295"},
		{name: "data by a global that fits", at: 65_535, segment: data(chain, 1)},
		{name: "data by a global", at: 65_536, segment: data(first, 1), item: "active data segment 1: 1 at 65536"},
		{name: "data by a global of a global", at: 65_536, segment: data(chain, 1), item: "active data segment 1: 1 at 65536"},
		{name: "passive data larger than the memory", segment: cat(1, uleb(70_000), make([]byte, 70_000))},
		{name: "elements up to the end", element: true, segment: elements(constant(2), 2)},
		{name: "elements over the end", element: true, segment: elements(constant(3), 2), item: "active element segment 1: 2 at 3"},
		{name: "elements where only the maximum reaches", element: true, segment: elements(constant(4), 1), item: "active element segment 1"},
		{name: "no elements behind the end", element: true, segment: elements(constant(5), 0), item: "active element segment 1: 0 at 5"},
		{name: "elements by a global", element: true, at: -8, segment: elements(chain, 1), item: "active element segment 1: 1 at 4294967288"},
		{name: "declared elements", element: true, segment: cat(3, 0, 9, make([]byte, 9))},
		{name: "data at an i64, which is the engine's to refuse", segment: data(cat(i64c(1<<40), 0x0b), 1)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := segmented(tc.at)
			b.datas, b.elements = [][]byte{data(constant(0), 1)}, [][]byte{elements(constant(0), 1)}
			if tc.element {
				b.elements = append(b.elements, tc.segment)
			} else {
				b.datas = append(b.datas, tc.segment)
			}
			_, err := meter.Decode(b.bytes(), meter.DefaultLimits())
			if tc.item == "" {
				if err != nil {
					t.Errorf("got %v, want it accepted", err)
				}
				return
			}
			wantRefusal(t, err, meter.CodeInitTrap, meter.StepWalk, tc.item)
		})
	}
}
