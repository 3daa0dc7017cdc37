package meter

import "strings"

// ValueType is a wasm value type in its binary form.
type ValueType byte

// The value types of core 2.0.
const (
	I32       ValueType = 0x7f
	I64       ValueType = 0x7e
	F32       ValueType = 0x7d
	F64       ValueType = 0x7c
	V128      ValueType = 0x7b
	FuncRef   ValueType = 0x70
	ExternRef ValueType = 0x6f
)

// String names the type as the text format does.
func (t ValueType) String() string {
	switch t {
	case I32:
		return "i32"
	case I64:
		return "i64"
	case F32:
		return "f32"
	case F64:
		return "f64"
	case V128:
		return "v128"
	case FuncRef:
		return "funcref"
	case ExternRef:
		return "externref"
	}
	return "invalid"
}

func (t ValueType) valid() bool { return t.String() != "invalid" }

func (t ValueType) reference() bool { return t == FuncRef || t == ExternRef }

// FuncType is a function signature.
type FuncType struct {
	Params, Results []ValueType
}

// String writes the signature as "(i32, i32) -> (f64)".
func (t FuncType) String() string {
	return "(" + joinTypes(t.Params) + ") -> (" + joinTypes(t.Results) + ")"
}

func joinTypes(ts []ValueType) string {
	names := make([]string, len(ts))
	for i, t := range ts {
		names[i] = t.String()
	}
	return strings.Join(names, ", ")
}

// Kind says what an export is.
type Kind byte

// The kinds of core 2.0. Imports are always functions here; the others are refused.
const (
	KindFunc   Kind = 0
	KindTable  Kind = 1
	KindMemory Kind = 2
	KindGlobal Kind = 3
)

// String names the kind.
func (k Kind) String() string {
	switch k {
	case KindFunc:
		return "function"
	case KindTable:
		return "table"
	case KindMemory:
		return "memory"
	case KindGlobal:
		return "global"
	}
	return "invalid"
}

// Import is one imported function, in module order.
type Import struct {
	Module, Name string
	Type         FuncType
	typeIndex    uint32
}

// Export is one export, in module order. Type is set for functions only.
type Export struct {
	Name  string
	Kind  Kind
	Index uint32 // in the original index space
	Type  FuncType
}

// Module is a decoded module within its limits. It keeps the bytes given to Decode, which must not change
// while the Module is in use. It is immutable and safe for concurrent use.
type Module struct {
	// Manifest is the raw content of the routerd.manifest section, nil where there is none.
	Manifest []byte
	// Imports are the functions that the module asks for; whether they are allowed is the host's table.
	Imports []Import
	// Exports are unique by name; rp_*, _initialize and memory are defined in the module.
	Exports []Export
	// HasMemory says whether the module defines its memory; MemoryMin and MemoryMax are in pages of
	// 64 KiB, MemoryMax is 65,536 where the module declares none.
	HasMemory            bool
	MemoryMin, MemoryMax uint32
	// HasStart says whether there is a start section: its function runs at instantiation.
	HasStart bool
	// Names are function names for people, by original function index: at most 4,096 of at most 64
	// printable ASCII bytes. They are the guest's words, never to be trusted.
	Names map[uint32]string

	limits   Limits
	types    []FuncType
	funcs    []uint32 // type index of each defined function
	tables   []table
	globals  []global
	start    uint32
	elements []element
	data     []dataSegment
	hasCount bool // a data count section is there
	bodies   []body
}

type table struct {
	kind     ValueType
	min, max uint32
	hasMax   bool
}

type global struct {
	kind    ValueType
	mutable bool
	init    constExpr
}

// element is an element segment in its general form: entries are always expressions.
type element struct {
	mode    segmentMode
	kind    ValueType
	offset  constExpr // active only
	entries []constExpr
	exprs   bool // the segment was written with expressions
}

type dataSegment struct {
	mode   segmentMode
	offset constExpr // active only
	bytes  []byte
}

type segmentMode byte

const (
	modeActive segmentMode = iota
	modePassive
	modeDeclared
)

// body is one defined function: where its bytes are and what the first walk found.
type body struct {
	code      []byte // local declarations and expression, a view of the module
	offset    int    // of code in the module, for messages
	locals    uint32 // parameters + declared locals
	hasLength bool   // holds an instruction that is charged by its length operand
}

// Function returns the export's signature where name is an exported function.
func (m *Module) Function(name string) (FuncType, bool) {
	for _, e := range m.Exports {
		if e.Name == name && e.Kind == KindFunc {
			return e.Type, true
		}
	}
	return FuncType{}, false
}

// FunctionNames are a module's function names apart from the module, which can be
// let go. Immutable and safe for concurrent use.
type FunctionNames struct {
	names   map[uint32]string
	imports uint32
}

// FunctionNames returns the names.
func (m *Module) FunctionNames() FunctionNames {
	return FunctionNames{names: m.Names, imports: uint32(len(m.Imports))}
}

// Rewritten names a function by its index in the rewritten module, as engine traces give it; "" where the module
// carries no name for it.
func (n FunctionNames) Rewritten(index uint32) string {
	switch {
	case index < n.imports:
		return n.names[index]
	case index == n.imports:
		return RefuelName
	}
	return n.names[index-1]
}

// functions is the size of the original function index space.
func (m *Module) functions() uint32 { return uint32(len(m.Imports) + len(m.funcs)) }

// typeOf is the signature of a function by original index, which must be in range.
func (m *Module) typeOf(index uint32) FuncType {
	if n := uint32(len(m.Imports)); index >= n {
		return m.types[m.funcs[index-n]]
	}
	return m.Imports[index].Type
}
