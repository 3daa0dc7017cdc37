package meter_test

import (
	"errors"
	"math/rand"
	"strings"
	"testing"

	"github.com/routerd/routerd/host/meter"
)

// withGlobal is a module with one mutable i32 global, a memory and a table, so that index 1 is the one that
// the rewrite would add.
func withGlobal(code ...any) *builder {
	b := void(nil, code...)
	b.globals = [][]byte{cat(i32, 1, i32c(0), 0x0b)}
	b.memory(1)
	b.table(funcref, 2)
	return b
}

func raw(parts ...any) []byte { return cat(append([]any{header}, parts...)...) }

var hostileCases = []struct {
	name             string
	wasm             []byte
	code, step, item string
}{
	{"empty", nil, "E_PARSE", "section walk", "header"},
	{"component", []byte("\x00asm\x0d\x00\x01\x00"), "E_PARSE", "section walk", "header"},
	{"unknown section", raw(section(13, nil)), "E_PARSE", "section walk", "section 13"},
	{"section twice", raw(section(1, []byte{0}), section(1, []byte{0})), "E_PARSE", "section walk", "type section out of order"},
	{"section out of order", raw(section(3, []byte{0}), section(1, []byte{0})), "E_PARSE", "section walk", "type section out of order"},
	{"data count after code", raw(section(10, []byte{0}), section(12, []byte{0})), "E_PARSE", "section walk", "data count section out of order"},
	{"section too long for content", raw(section(1, []byte{0, 0})), "E_PARSE", "section walk", "1 bytes too many"},
	{"section cut", raw(1, 5, 0), "E_PARSE", "section walk", "type section of 5 bytes"},
	{"W4 custom section of 1 GiB", raw(0, uleb(1<<30), 1, "x"), "E_PARSE", "section walk", "custom section of 1073741824 bytes"},
	{"LEB of six bytes", raw(1, 0x80, 0x80, 0x80, 0x80, 0x80, 0), "E_PARSE", "section walk", "32-bit LEB128"},
	{"LEB above 32 bits", raw(1, 0xff, 0xff, 0xff, 0xff, 0x1f), "E_PARSE", "section walk", "32-bit LEB128"},
	{"W4 a million globals", raw(section(6, cat(uleb(1_000_000), repeat(1_000_000, i32, 0, 0x41, 0, 0x0b)))), "E_LIMIT", "section walk", "globals: 1000000"},
	{"W4 ten thousand tables", raw(section(4, cat(uleb(10_000), repeat(10_000, funcref, 0, 0)))), "E_LIMIT", "section walk", "tables: 10000"},
	{"W4 ten thousand memories", raw(section(5, cat(uleb(10_000), repeat(10_000, 0, 0)))), "E_LIMIT", "section walk", "memories: 10000"},
	{"W4 table of 100,000,000", raw(section(4, cat(1, funcref, 0, uleb(100_000_000)))), "E_LIMIT", "section walk", "table entries: 100000000"},
	{"W4 50,000 locals", void([][]byte{group(50_000, i32)}).bytes(), "E_LIMIT", "function bodies", "locals of function 0: 50000"},
	{"W4 4 billion locals", void(copies(8, group(1<<32-1, i32))).bytes(), "E_LIMIT", "function bodies", "locals of function 0"},
	{"W4 data of 100 MiB declared", raw(section(11, cat(1, 1, uleb(100<<20)))), "E_LIMIT", "section walk", "data bytes"},
	{"count that cannot fit", raw(section(1, uleb(1000))), "E_PARSE", "section walk", "1000 entries in 0 bytes"},
	{"function without body", raw(section(1, []byte{1, 0x60, 0, 0}), section(3, []byte{1, 0})), "E_PARSE", "section walk", "1 functions with 0 bodies"},
	{"body without function", raw(section(10, []byte{1, 2, 0, 0x0b})), "E_PARSE", "section walk", "0 functions with 1 bodies"},
	{"shared memory", raw(section(5, []byte{1, 3, 1, 2})), "E_PARSE", "section walk", "memory limits flag 0x03"},
	{"memory64", raw(section(5, []byte{1, 4, 1})), "E_PARSE", "section walk", "memory limits flag 0x04"},
	{"memory maximum below minimum", raw(section(5, []byte{1, 1, 2, 1})), "E_PARSE", "section walk", "maximum 1 below minimum 2"},
	{"table with initialiser", raw(section(4, []byte{1, 0x40, 0, funcref, 0, 1, 0xd0, funcref, 0x0b})), "E_PARSE", "section walk", "table type 0x40"},
	{"typed reference", raw(section(1, []byte{1, 0x60, 1, 0x63, 0x70, 0})), "E_PARSE", "section walk", "value type 0x63"},
	{"imported memory", raw(section(2, cat(1, str("env"), str("memory"), 2, 0, 1))), "E_IMPORT", "section walk", `"env" "memory" of kind memory`},
	{"imported table", raw(section(2, cat(1, str("env"), str("t"), 1, funcref, 0, 1))), "E_IMPORT", "section walk", `"env" "t" of kind table`},
	{"imported global", raw(section(2, cat(1, str("env"), str("g"), 3, i32, 0))), "E_IMPORT", "section walk", `"env" "g" of kind global`},
	{"imported tag", raw(section(2, cat(1, str("env"), str("x"), 4, 0, 0))), "E_IMPORT", "section walk", `"env" "x" of kind invalid (4)`},
	{"import of the refuel function", importing("routerd_v1", "__refuel").bytes(), "E_IMPORT", "section walk", "__refuel"},
	{"start is an import", func() []byte { b := importing("env", "f"); b.start = []byte{0}; return b.bytes() }(), "E_IMPORT", "section walk", `start function is the import "env" "f"`},
	{"start with a result", raw(section(1, []byte{1, 0x60, 0, 1, i32}), section(3, []byte{1, 0}), section(8, []byte{0})), "E_PARSE", "section walk", "start function of type () -> (i32)"},
	{"re-exported import as rp_score", reexport("rp_score"), "E_EXPORT", "section walk", `"rp_score" is the import "env" "f"`},
	{"re-exported import as _initialize", reexport("_initialize"), "E_EXPORT", "section walk", `"_initialize" is the import "env" "f"`},
	{"function called memory", reexport("memory"), "E_EXPORT", "section walk", `"memory" is a function`},
	{"rp_ that is no function", exporting("rp_alloc", 2, 0), "E_EXPORT", "section walk", `"rp_alloc" is a memory`},
	{"export of __fuel", exporting("__fuel", 3, 0), "E_EXPORT", "section walk", `"__fuel"`},
	{"export of _start", exporting("_start", 0, 0), "E_EXPORT", "section walk", `"_start"`},
	{"export twice", func() []byte { b := void(nil); b.export("a", 0, 0); b.export("a", 0, 0); return b.bytes() }(), "E_EXPORT", "section walk", `"a" twice`},
	{"export of the hidden global", exporting("g", 3, 1), "E_PARSE", "section walk", "export index 1"},
	{"global.get of the hidden global", withGlobal(0x23, 1, 0x1a).bytes(), "E_PARSE", "function bodies", "global index 1"},
	{"global.set of the hidden global", withGlobal(i64c(1), 0x24, 1).bytes(), "E_PARSE", "function bodies", "global index 1"},
	{"global.get of it in dead code", withGlobal(0x00, 0x23, 0x81, 0x80, 0x00).bytes(), "E_PARSE", "function bodies", "global index 1"},
	{"global initialiser names it", func() []byte {
		b := withGlobal()
		b.globals = append(b.globals, cat(i64, 0, 0x23, 2, 0x0b))
		return b.bytes()
	}(), "E_PARSE", "section walk", "global index 2 in a constant expression"},
	{"global initialiser names itself", func() []byte {
		b := withGlobal()
		b.globals = append(b.globals, cat(i64, 0, 0x23, 1, 0x0b))
		return b.bytes()
	}(), "E_PARSE", "section walk", "global index 1 in a constant expression"},
	{"element offset names it", func() []byte {
		b := withGlobal()
		b.elements = [][]byte{{0, 0x23, 1, 0x0b, 1, 0}}
		return b.bytes()
	}(), "E_PARSE", "section walk", "global index 1 in a constant expression"},
	{"element entry names it", func() []byte {
		b := withGlobal()
		b.elements = [][]byte{{5, funcref, 1, 0x23, 1, 0x0b}}
		return b.bytes()
	}(), "E_PARSE", "section walk", "global index 1 in a constant expression"},
	{"data offset names it", func() []byte {
		b := withGlobal()
		b.datas = [][]byte{{0, 0x23, 1, 0x0b, 0}}
		return b.bytes()
	}(), "E_PARSE", "section walk", "global index 1 in a constant expression"},
	{"call beyond the functions", void(nil, 0x10, 1).bytes(), "E_PARSE", "function bodies", "function index 1"},
	{"ref.func beyond the functions", void(nil, 0xd2, 1, 0x1a).bytes(), "E_PARSE", "function bodies", "function index 1"},
	{"ref.func in a body", void(nil, 0xd2, 0, 0x1a).bytes(), "E_LIMIT", "function bodies", "ref.func in function 0"},
	{"ref.func in dead code", void(nil, 0x00, 0xd2, 0, 0x1a).bytes(), "E_LIMIT", "function bodies", "ref.func in function 0"},
	{"element beyond the functions", func() []byte { b := withGlobal(); b.elements = [][]byte{{0, 0x41, 0, 0x0b, 1, 1}}; return b.bytes() }(), "E_PARSE", "section walk", "element function index 1"},
	{"export beyond the functions", exporting("f", 0, 1), "E_PARSE", "section walk", "export index 1"},
	{"local that the rewrite adds", void(nil, 0x20, 0, 0x1a).bytes(), "E_PARSE", "function bodies", "local index 0"},
	{"0xfc sub-opcode padded", withGlobal(0xfc, 0x80, 0x00).bytes(), "E_PARSE", "function bodies", "0xfc 0x80"},
	{"0xfc sub-opcode 18", withGlobal(0xfc, 18).bytes(), "E_PARSE", "function bodies", "0xfc 0x12"},
	{"0xfd sub-opcode padded to two", withGlobal(0xfd, 0x8c, 0x00, make([]byte, 16)).bytes(), "E_PARSE", "function bodies", "0xfd 0x8c 0x00"},
	{"0xfd sub-opcode padded to three", withGlobal(0xfd, 0x8c, 0x80, 0x00, make([]byte, 16)).bytes(), "E_PARSE", "function bodies", "0xfd 0x8c 0x80"},
	{"0xfd sub-opcode high byte alone", withGlobal(0xfd, 0xae, 0x81, 0x00).bytes(), "E_PARSE", "function bodies", "0xfd 0xae 0x81"},
	{"relaxed SIMD", withGlobal(0xfd, 0x80, 0x02).bytes(), "E_PARSE", "function bodies", "0xfd 0x80 0x02"},
	{"undefined SIMD", withGlobal(0xfd, 0x9a, 0x01).bytes(), "E_PARSE", "function bodies", "sub-opcode 154"},
	{"threads", withGlobal(0xfe, 0x00).bytes(), "E_PARSE", "function bodies", "instruction 0xfe"},
	{"tail call", withGlobal(0x12, 0).bytes(), "E_PARSE", "function bodies", "instruction 0x12"},
	{"exceptions", withGlobal(0x08, 0).bytes(), "E_PARSE", "function bodies", "instruction 0x08"},
	{"multi-memory load", withGlobal(i32c(0), 0x28, 0x42, 0, 0, 0x1a).bytes(), "E_PARSE", "function bodies", "alignment 2^66"},
	{"memory.grow of memory 1", withGlobal(i32c(0), 0x40, 1, 0x1a).bytes(), "E_PARSE", "function bodies", "memory index 0x01"},
	{"memory index padded", withGlobal(i32c(0), 0x40, 0x80, 0x00, 0x1a).bytes(), "E_PARSE", "function bodies", "memory index 0x80"},
	{"block type in two bytes", void(nil, 0x02, 0xc0, 0x7f, 0x0b).bytes(), "E_PARSE", "function bodies", "negative block type"},
	{"block type beyond the types", void(nil, 0x02, 1, 0x0b).bytes(), "E_PARSE", "function bodies", "block type 1"},
	{"label beyond the blocks", void(nil, 0x0c, 1).bytes(), "E_PARSE", "function bodies", "label 1"},
	{"br_table label beyond", void(nil, i32c(0), 0x0e, 1, 2, 0).bytes(), "E_PARSE", "function bodies", "label 2"},
	{"br_table of 4 billion", void(nil, i32c(0), 0x0e, uleb(1<<32-1)).bytes(), "E_LIMIT", "function bodies", "br_table"},
	{"else in a block", void(nil, 0x02, 0x40, 0x05, 0x0b).bytes(), "E_PARSE", "function bodies", "else outside an if"},
	{"second else", void(nil, i32c(0), 0x04, 0x40, 0x05, 0x05, 0x0b).bytes(), "E_PARSE", "function bodies", "else outside an if"},
	{"code after the last end", void(nil, 0x0b, 0x01).bytes(), "E_PARSE", "function bodies", "2 bytes after its end"},
	{"body without end", raw(section(1, []byte{1, 0x60, 0, 0}), section(3, []byte{1, 0}), section(10, []byte{1, 2, 0, 0x01})), "E_PARSE", "function bodies", "cut off"},
	{"memory instruction without memory", void(nil, 0x3f, 0, 0x1a).bytes(), "E_PARSE", "function bodies", "without a memory"},
	{"memory.init without data count", withGlobal(i32c(0), i32c(0), i32c(0), 0xfc, 8, 0, 0).bytes(), "E_PARSE", "function bodies", "without a data count"},
	{"data count that differs", raw(section(12, []byte{1})), "E_PARSE", "section walk", "data count 1 with 0"},
	{"extended constant", raw(section(6, cat(1, i32, 0, i32c(1), i32c(2), 0x6a, 0x0b))), "E_PARSE", "section walk", "after the first"},
	{"no constant", raw(section(6, cat(1, i32, 0, 0x3f, 0, 0x0b))), "E_PARSE", "section walk", "in a constant expression"},
	{"name that is no UTF-8", raw(section(0, cat(1, 0xff))), "E_PARSE", "section walk", "custom section name"},
	{"manifest twice", func() []byte {
		b := &builder{}
		b.custom(meter.ManifestSection, []byte("{}"))
		b.custom(meter.ManifestSection, []byte("{}"))
		return b.bytes()
	}(), "E_MANIFEST", "section walk", "second routerd.manifest"},
}

func importing(module, name string) *builder {
	b := &builder{}
	t := b.typ(nil, nil)
	b.imp(module, name, t)
	return b
}

func reexport(name string) []byte {
	b := importing("env", "f")
	b.export(name, 0, 0)
	return b.bytes()
}

func exporting(name string, kind int, index uint64) []byte {
	b := withGlobal()
	b.export(name, kind, index)
	return b.bytes()
}

func TestW4_HostileModulesAreRefusedByName(t *testing.T) {
	for _, tc := range hostileCases {
		t.Run(tc.name, func(t *testing.T) {
			_, err := meter.Decode(tc.wasm, meter.DefaultLimits())
			wantRefusal(t, err, tc.code, tc.step, tc.item)
		})
	}
}

// richModule uses every section.
func richModule() []byte {
	b := &builder{}
	v, add := b.typ(nil, nil), b.typ([]byte{i32, i32}, []byte{i32})
	b.imp("routerd_v1", "log", b.typ([]byte{i32, i32, i32}, nil))
	b.fn(add, [][]byte{group(2, i64)}, get(0), get(1), 0x6a, 0x02, 0x40, 0x03, 0x40, get(0), 0x0d, 1, 0x0c, 0, 0x0b, 0x0b)
	b.fn(v, nil, i32c(0), i32c(1), i32c(2), 0xfc, 8, 0, 0, i32c(5), 0x04, 0x40, 0x01, 0x05, i32c(0), 0x0e, 2, 0, 0, 0, 0x0b)
	b.table(funcref, 3)
	b.memory(1, 4)
	b.globals = [][]byte{cat(f64, 1, f64c(1.5), 0x0b)}
	b.export("memory", 2, 0)
	b.export("rp_score", 0, 1)
	b.start = []byte{2}
	b.elements = [][]byte{{0, 0x41, 0, 0x0b, 2, 1, 2}, cat(5, funcref, 2, 0xd0, funcref, 0x0b, 0xd2, 1, 0x0b)}
	b.count = true
	b.datas = [][]byte{cat(1, str("abc")), cat(0, i32c(8), 0x0b, str("defg"))}
	b.custom(meter.ManifestSection, []byte(`{"abi":"routerd.policy/v1"}`))
	b.custom("name", cat(1, 10, 2, 1, str("add"), 2, str("\x1b!")))
	return b.bytes()
}

// tryBoth decodes and rewrites; neither may panic, and refusals are *meter.Error.
func tryBoth(t *testing.T, wasm []byte) {
	t.Helper()
	m, err := meter.Decode(wasm, meter.DefaultLimits())
	if err == nil {
		_, err = m.Rewrite(meter.Options{MemoryMaxPages: 64, StartFuel: 1000, Slice: 10_000})
	}
	if err == nil {
		return
	}
	if e, ok := errors.AsType[*meter.Error](err); !ok || e.Item == "" || e.Allowed == "" {
		t.Fatalf("got %#v, want a full *meter.Error", err)
	}
}

func TestTruncationAtEveryByteIsRefusedWithoutPanic(t *testing.T) {
	wasm := richModule()
	for n := range wasm {
		tryBoth(t, wasm[:n])
	}
}

func TestEveryByteChangedNeverPanics(t *testing.T) {
	wasm := richModule()
	rng := rand.New(rand.NewSource(1))
	for i := range wasm {
		for _, c := range []byte{wasm[i] ^ 0xff, wasm[i] ^ 0x80, wasm[i] + 1, 0, 0xff, byte(rng.Intn(256))} {
			changed := []byte(string(wasm))
			changed[i] = c
			tryBoth(t, changed)
		}
	}
}

func TestErrorSaysAllOnOneLine(t *testing.T) {
	_, err := meter.Decode(exporting("__fuel", 3, 0), meter.DefaultLimits())
	want := `E_EXPORT: section walk: export "__fuel"; allowed: any other name: this one is the host's`
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestLongGuestTextIsCutAndEscaped(t *testing.T) {
	_, err := meter.Decode(importing(strings.Repeat("\n", 256), "f").bytes(), meter.DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	b := &builder{}
	b.imports = [][]byte{cat(str(strings.Repeat("\x1b", 256)), str("m"), 2, 0, 1)}
	_, err = meter.Decode(b.bytes(), meter.DefaultLimits())
	wantRefusal(t, err, "E_IMPORT", "section walk", `\x1b`)
	if strings.ContainsRune(err.Error(), '\x1b') {
		t.Errorf("control character in %q", err)
	}
}
