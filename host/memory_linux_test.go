package host_test

import (
	"runtime/debug"
	"testing"

	"github.com/routerd/routerd/host"
	. "github.com/routerd/routerd/host/wasmtest"
	"github.com/routerd/routerd/internal/testkit"
)

func TestW3_ResidentMemoryGrowsByAtMostTheLimit(t *testing.T) {
	const limit = 32 << 20
	// Grows by 4 GiB, then by what it gets, and touches each page that it has.
	touch := Cat(
		I32(65_535), Op(0x40, 0), Op(Drop),
		Block(Loop(I32(1), Op(0x40, 0), I32(-1), Op(I32Eq), BrIf(1), Br(0))),
		I32(0), Set(1),
		Block(Loop(
			Get(1), Op(0x3f, 0), I32(16), Op(I32Shl), Op(I32GeU), BrIf(1),
			Get(1), I32(1), Store8(100), Get(1), I32(4096), Op(I32Add), Set(1), Br(0),
		)),
	)
	g := Guest{ScoreTypes: ColumnTypes, Score: Cat(touch, Column(0, Op(F64Neg))), Extra: `,"limits":{"memory_pages":1024,"fuel_base":9000000}`}
	r := newRuntime(t, func(c *host.Config) { c.MemoryLimit, c.Instances = limit, 4 })
	debug.FreeOSMemory()
	before := testkit.Resident(t)
	s := stage(t, r, g.Bytes(), "")
	for range 20 {
		_, _, _ = score(s, 3)
	}
	grew := testkit.Resident(t) - before
	t.Logf("resident memory grew by %d KiB", grew>>10)
	if grew > limit+16<<20 {
		t.Errorf("resident memory grew by %d bytes, want at most plugins.memory_limit of %d and the rest of the process's noise", grew, limit)
	}
	if u := r.Usage().Memory; u > limit {
		t.Errorf("guests see %d bytes, want at most %d", u, limit)
	}
}
