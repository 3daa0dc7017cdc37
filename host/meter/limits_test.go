package meter_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/routerd/routerd/host/meter"
)

func repeat(n int, item ...any) []byte { return bytes.Repeat(cat(item...), n) }

func copies(n int, item []byte) [][]byte {
	out := make([][]byte, n)
	for i := range out {
		out[i] = item
	}
	return out
}

// limitCases build a module whose tested quantity is n; at is the limit.
var limitCases = []struct {
	name  string
	at    int
	build func(n int) []byte
	code  string
	step  string
	item  string
}{
	{"custom sections", 64, func(n int) []byte {
		b := &builder{}
		for range n {
			b.custom("x", nil)
		}
		return b.bytes()
	}, meter.CodeLimit, meter.StepWalk, "custom sections"},
	{"manifest bytes", 64 << 10, func(n int) []byte {
		b := &builder{}
		b.custom(meter.ManifestSection, make([]byte, n))
		return b.bytes()
	}, meter.CodeManifest, meter.StepWalk, "routerd.manifest"},
	{"module bytes", 8 << 20, func(n int) []byte {
		b := &builder{}
		frame := len(header) + 1 + 4 + 2
		b.custom("x", make([]byte, n-frame))
		return b.bytes()
	}, meter.CodeSize, meter.StepSize, "module of"},
	{"types", 1024, func(n int) []byte {
		return (&builder{types: copies(n, []byte{0x60, 0, 0})}).bytes()
	}, meter.CodeLimit, meter.StepWalk, "types"},
	{"parameters", 64, func(n int) []byte {
		b := &builder{}
		b.typ(repeat(n, i32), nil)
		return b.bytes()
	}, meter.CodeLimit, meter.StepWalk, "parameters"},
	{"results", 16, func(n int) []byte {
		b := &builder{}
		b.typ(nil, repeat(n, i32))
		return b.bytes()
	}, meter.CodeLimit, meter.StepWalk, "results"},
	{"values of all types", 16_384, func(n int) []byte {
		b := &builder{}
		for ; n > 0; n -= 64 {
			b.typ(repeat(min(n, 64), i32), nil)
		}
		return b.bytes()
	}, meter.CodeLimit, meter.StepWalk, "parameters and results of all types"},
	{"block type values", 16, func(n int) []byte {
		b := void(nil, repeat(n, i32c(0)), 0x02, 1, 0x00, 0x0b)
		b.typ(repeat(n, i32), nil)
		return b.bytes()
	}, meter.CodeLimit, meter.StepBodies, "block type values"},
	{"imports", 64, func(n int) []byte {
		b := &builder{}
		t := b.typ(nil, nil)
		for i := range n {
			b.imp("env", fmt.Sprint(i), t)
		}
		return b.bytes()
	}, meter.CodeLimit, meter.StepWalk, "imports"},
	{"import name", 256, func(n int) []byte {
		b := &builder{}
		b.imp("env", strings.Repeat("n", n), b.typ(nil, nil))
		return b.bytes()
	}, meter.CodeLimit, meter.StepWalk, "import name"},
	{"exports", 256, func(n int) []byte {
		b := void(nil)
		for i := range n {
			b.export(fmt.Sprint(i), 0, 0)
		}
		return b.bytes()
	}, meter.CodeLimit, meter.StepWalk, "exports"},
	{"functions", 20_000, func(n int) []byte {
		b := &builder{}
		b.typ(nil, nil)
		b.funcs, b.codes = copies(n, []byte{0}), copies(n, []byte{2, 0, 0x0b})
		return b.bytes()
	}, meter.CodeLimit, meter.StepWalk, "functions"},
	{"body bytes", 64 << 10, func(n int) []byte {
		return void(nil, repeat(n-2, 0x01)).bytes()
	}, meter.CodeLimit, meter.StepWalk, "body bytes of function 0"},
	{"locals", 1024, func(n int) []byte {
		return void([][]byte{group(1, f64), group(uint64(n-1), i32)}).bytes()
	}, meter.CodeLimit, meter.StepBodies, "locals of function 0"},
	{"locals in all", 4 << 20 / 8, func(n int) []byte {
		b := &builder{}
		t := b.typ(nil, nil)
		for ; n > 0; n -= 1024 {
			b.fn(t, [][]byte{group(uint64(min(n, 1024)), i32)})
		}
		return b.bytes()
	}, meter.CodeLimit, meter.StepBodies, "locals of functions up to 512"},
	{"nesting", 1024, func(n int) []byte {
		return void(nil, repeat(n, 0x02, 0x40), repeat(n, 0x0b)).bytes()
	}, meter.CodeLimit, meter.StepBodies, "nesting in function 0"},
	{"loops", 1024, func(n int) []byte {
		b := void(nil, repeat(n/2, 0x03, 0x40, 0x0b), repeat(n-n/2, 0x03, 0x40), repeat(n-n/2, 0x0b))
		b.fn(0, nil, 0x03, 0x40, 0x0b) // of a function each
		return b.bytes()
	}, meter.CodeLimit, meter.StepBodies, "loops of function 0"},
	{"br_table", 2048, func(n int) []byte {
		return void(nil, i32c(0), 0x0e, uleb(uint64(n)), repeat(n, 0), 0).bytes()
	}, meter.CodeLimit, meter.StepBodies, "br_table"},
	{"globals", 1024, func(n int) []byte {
		return (&builder{globals: copies(n, cat(i32, 0, i32c(0), 0x0b))}).bytes()
	}, meter.CodeLimit, meter.StepWalk, "globals"},
	{"table minimum", 65_536, func(n int) []byte {
		b := &builder{}
		b.table(funcref, uint64(n))
		return b.bytes()
	}, meter.CodeLimit, meter.StepWalk, "table entries"},
	{"table maximum", 65_536, func(n int) []byte {
		b := &builder{}
		b.table(funcref, 1, uint64(n))
		return b.bytes()
	}, meter.CodeLimit, meter.StepWalk, "table entries"},
	{"tables", 1, func(n int) []byte {
		return (&builder{tables: copies(n, []byte{funcref, 0, 1})}).bytes()
	}, meter.CodeLimit, meter.StepWalk, "tables"},
	{"memories", 1, func(n int) []byte {
		return (&builder{memories: copies(n, []byte{0, 1})}).bytes()
	}, meter.CodeLimit, meter.StepWalk, "memories"},
	{"memory pages", 65_536, func(n int) []byte {
		b := &builder{}
		b.memory(1, uint64(n))
		return b.bytes()
	}, meter.CodeLimit, meter.StepWalk, "memory pages"},
	{"element segments", 1024, func(n int) []byte {
		return (&builder{elements: copies(n, []byte{1, 0, 0})}).bytes()
	}, meter.CodeLimit, meter.StepWalk, "element segments"},
	{"element entries", 65_536, func(n int) []byte {
		b := void(nil)
		b.elements = [][]byte{{1, 0, 1, 0}, cat(1, 0, uleb(uint64(n-1)), make([]byte, n-1))}
		return b.bytes()
	}, meter.CodeLimit, meter.StepWalk, "element entries"},
	{"data segments", 100_000, func(n int) []byte {
		return (&builder{datas: copies(n, []byte{1, 0})}).bytes()
	}, meter.CodeLimit, meter.StepWalk, "data segments"},
	{"data bytes", 4 << 20, func(n int) []byte {
		return (&builder{datas: [][]byte{{1, 1, 0}, cat(1, uleb(uint64(n-1)), make([]byte, n-1))}}).bytes()
	}, meter.CodeLimit, meter.StepWalk, "data bytes"},
}

func TestEachLimitPassesAtAndBitesAbove(t *testing.T) {
	for _, tc := range limitCases {
		t.Run(tc.name, func(t *testing.T) {
			if _, err := meter.Decode(tc.build(tc.at), meter.DefaultLimits()); err != nil {
				t.Fatalf("at %d: %v", tc.at, err)
			}
			_, err := meter.Decode(tc.build(tc.at+1), meter.DefaultLimits())
			wantRefusal(t, err, tc.code, tc.step, tc.item)
			var e *meter.Error
			if errors.As(err, &e); !strings.Contains(e.Allowed, fmt.Sprint(tc.at)) && tc.at > 1 {
				t.Errorf("allowed %q does not name %d", e.Allowed, tc.at)
			}
		})
	}
}

func wantRefusal(t *testing.T, err error, code, step, item string) {
	t.Helper()
	var e *meter.Error
	if !errors.As(err, &e) {
		t.Fatalf("got %v, want a refusal %s", err, code)
	}
	if e.Code != code || e.Step != step || !strings.Contains(e.Item, item) || e.Allowed == "" {
		t.Errorf("got %v, want code %s, step %q, item with %q and what is allowed", e, code, step, item)
	}
	if len(e.Item) > 200 {
		t.Errorf("item of %d bytes", len(e.Item))
	}
}
