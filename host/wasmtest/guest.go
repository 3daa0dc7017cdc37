package wasmtest

import (
	"fmt"
	"strings"

	"github.com/routerd/routerd/plugins/abi"
)

// Guest is a module, a scorer unless Kinds says otherwise. The zero value is a good one that returns its first
// column, load.active_requests, negated: the least loaded row wins. Replaced
// parts are function bodies; the default of each is what a good guest does.
type Guest struct {
	Name     string            // of the manifest; "test" when empty
	Manifest string            // the whole manifest instead; "-" for none
	Columns  []string          // declared columns; load.active_requests when nil
	Missing  map[string]string // what some of them declare as missing, as JSON
	Extra    string            // more members of the manifest, each with a leading comma
	Imports  [][4]string
	Pages    uint64 // 4 when 0
	MaxPages int64  // none when 0

	// Kinds are those of the manifest; scorer when nil. What a module of another
	// kind exports has the locals of ColumnTypes behind the frame.
	Kinds  []string
	Filter Code // (frame i32) -> i32; keeps all
	Lora   Code // (frame i32) -> i32; as Score
	Pick   Code // (frame i32) -> i32; picks the first kept row
	Whole  Code // (frame i32) -> i32; scores as Score and picks row 0

	Score      Code   // (frame i32) -> i32
	ScoreTypes string // locals of Score beyond the frame
	Alloc      Code   // (size i32) -> i32, locals i
	Configure  Code   // (ptr i32, len i32) -> i32
	Bind       Code   // (frame i32, capacity i32) -> i32
	ABI        Code   // () -> i32
	LastError  Code   // () -> i64; not exported when nil
	Idle       Code   // () -> (), locals i; not exported when nil
	Initialize Code   // () -> (); not exported when nil
	Start      Code   // () -> (); no start section when nil

	// Before adds imports, types and functions before the guest's own; it sees
	// the module after Imports. After adds what comes behind.
	Before func(m *Module)
	After  func(m *Module)
	// Skip names exports that are left out.
	Skip map[string]bool
}

// Bytes writes the module.
func (g Guest) Bytes() []byte {
	m := &Module{}
	for _, i := range g.Imports {
		m.Import(i[0], i[1], i[2], i[3])
	}
	m.Memory(g.pages(), g.maxPages())
	top := m.Global(1024)
	if g.Before != nil {
		g.Before(m)
	}
	export := func(name string, index uint64) {
		if !g.Skip[name] {
			m.Export(name, index)
		}
	}
	if !g.Skip["memory"] {
		m.ExportMemory("memory")
	}
	export("rp_abi_v1", m.Func("", "i", "", orElse(g.ABI, I32(0))))
	export("rp_alloc", m.Func("i", "i", "i", orElse(g.Alloc, bump(top))))
	export("rp_configure", m.Func("ii", "i", "i", orElse(g.Configure, I32(0))))
	export("rp_bind", m.Func("ii", "i", "i", orElse(g.Bind, I32(0))))
	g.kinds(m, export)
	if g.Idle != nil {
		export("rp_idle", m.Func("", "", "i", g.Idle))
	}
	if g.LastError != nil {
		export("rp_last_error", m.Func("", "l", "", g.LastError))
	}
	if g.Initialize != nil {
		export("_initialize", m.Func("", "", "i", g.Initialize))
	}
	if g.Start != nil {
		m.Start(m.Func("", "", "i", g.Start))
	}
	if g.After != nil {
		g.After(m)
	}
	if manifest := g.manifest(); manifest != "-" {
		m.Custom(abi.ManifestSection, []byte(manifest))
	}
	return m.Bytes()
}

// kinds writes the functions of the declared kinds.
func (g Guest) kinds(m *Module, export func(name string, index uint64)) {
	least := Column(0, Op(F64Neg))
	for _, k := range g.declared() {
		types, body := ColumnTypes, Code(nil)
		switch k {
		case "scorer":
			body = orElse(g.Score, least)
			if g.Score != nil {
				types = g.ScoreTypes
			}
		case "filter":
			body = orElse(g.Filter, I32(0))
		case "lora-scorer":
			body = orElse(g.Lora, least)
		case "picker":
			body = orElse(g.Pick, FirstKept())
		case "policy":
			body = orElse(g.Whole, Cat(least, Op(Drop), PickRow(I32(0))))
		}
		export(abi.Kind(k).Export(), m.Func("i", "i", types, body))
	}
}

func (g Guest) declared() []string {
	if g.Kinds == nil {
		return []string{"scorer"}
	}
	return g.Kinds
}

func (g Guest) pages() uint64 {
	if g.Pages == 0 {
		return 4
	}
	return g.Pages
}

func (g Guest) maxPages() int64 {
	if g.MaxPages == 0 {
		return -1
	}
	return g.MaxPages
}

func (g Guest) manifest() string {
	if g.Manifest != "" {
		return g.Manifest
	}
	name := g.Name
	if name == "" {
		name = "test"
	}
	columns := g.Columns
	if columns == nil {
		columns = []string{"load.active_requests"}
	}
	list := ""
	for i, c := range columns {
		if i > 0 {
			list += ","
		}
		missing := ""
		if m, ok := g.Missing[c]; ok {
			missing = `,"missing":` + m
		}
		list += fmt.Sprintf(`{"name":%q%s}`, c, missing)
	}
	return fmt.Sprintf(`{"abi":"routerd.policy/v1","name":%q,"version":"1.0.0","kinds":["%s"],"columns":[%s]%s}`,
		name, strings.Join(g.declared(), `","`), list, g.Extra)
}

func orElse(c, d Code) Code {
	if c != nil {
		return c
	}
	return d
}

// bump is an allocator that never frees; local 1 holds the result.
func bump(top uint64) Code {
	return Cat(
		GetGlobal(top), Tee(1),
		Get(0), I32(63), Op(I32Add), I32(-64), Op(I32And), Op(I32Add), SetGlobal(top),
		Get(1),
	)
}

// ColumnTypes are the locals that Column and Constant need behind the frame.
const ColumnTypes = "iiiid"

// Column is a Score that walks column number c and writes each value after
// value has changed it on the stack; it returns 0. Locals: 1 rows left, 2
// scores, 3 column, 4 and 5 free.
func Column(c uint64, value ...Code) Code {
	return Cat(
		Get(0), Load32(abi.OffRows), Set(1),
		Get(0), Get(0), Load32(abi.OffScores), Op(I32Add), Set(2),
		Get(0), Get(0), Get(0), Load32(abi.OffColumnStarts), Op(I32Add), Load32(4*c), Op(I32Add), Set(3),
		Loop(
			Get(2), Get(3), LoadF64(0), Cat(value...), StoreF64(0),
			Get(2), I32(8), Op(I32Add), Set(2),
			Get(3), I32(8), Op(I32Add), Set(3),
			Get(1), I32(1), Op(I32Sub), Tee(1), BrIf(0),
		),
		I32(0),
	)
}

// Field pushes request field number i; local 0 is the frame.
func Field(i uint64) Code {
	return Cat(Get(0), Get(0), Load32(abi.OffRequest), Op(I32Add), LoadF64(8*i))
}

// PickRow is a Pick of the row pushed by row.
func PickRow(row ...Code) Code {
	return Cat(Get(0), Cat(row...), Store32(abi.OffPick), I32(0))
}

// FirstKept is a Pick of the first row whose mask byte is 1. Locals: 1 the row,
// 2 the mask.
func FirstKept() Code {
	return Cat(
		Get(0), Get(0), Load32(abi.OffMask), Op(I32Add), Set(2),
		Block(Loop(
			Get(2), Get(1), Op(I32Add), Load8(0), BrIf(1),
			Get(1), I32(1), Op(I32Add), Set(1), Br(0),
		)),
		PickRow(Get(1)),
	)
}

// SetMask writes a mask byte.
func SetMask(row int32, b int32) Code {
	return Cat(Get(0), Get(0), Load32(abi.OffMask), Op(I32Add), I32(b), Store8(uint64(row)))
}

// Constant is a Score that gives each row the value pushed by value.
func Constant(value ...Code) Code {
	return Column(0, Op(Drop), Cat(value...))
}
