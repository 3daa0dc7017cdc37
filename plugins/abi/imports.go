package abi

// ValType is a Wasm number type as encoded in a binary.
type ValType byte

// The number types that imports use.
const (
	I32 ValType = 0x7f
	I64 ValType = 0x7e
	F64 ValType = 0x7c
)

// String is the type's name in the text format.
func (v ValType) String() string {
	switch v {
	case I32:
		return "i32"
	case I64:
		return "i64"
	case F64:
		return "f64"
	default:
		return "unknown"
	}
}

// Modules that a guest may import from.
const (
	ModuleRouterd = "routerd_v1"
	ModuleEnv     = "env"
	ModuleWASI    = "wasi_snapshot_preview1"
)

// Levels of routerd_v1.log; any other number is an error.
const (
	LogDebug = 0
	LogInfo  = 1
	LogWarn  = 2
	LogError = 3
)

// Limits of the imports.
const (
	MaxLogBytes          = 512
	MaxRandomBytes       = 256
	MaxWriteVectors      = 16
	MaxWriteBytes        = 4096
	MaxPollSubscriptions = 64
)

// Import is one function that a guest may import.
type Import struct {
	Module  string
	Name    string
	Params  []ValType
	Results []ValType
	Meaning string
	Since   int
}

// Key is the name as an error or a log shows it: module.name.
func (i *Import) Key() string { return i.Module + "." + i.Name }

// Imports returns every function that a guest may import: those of routerd_v1,
// env.abort, then WASI preview 1. Only those of routerd_v1 are named in the
// manifest, by their bare name. The caller must not change the table.
func Imports() []Import { return importTable }

// ImportByName finds an import.
func ImportByName(module, name string) (*Import, bool) {
	for i := range importTable {
		if importTable[i].Module == module && importTable[i].Name == name {
			return &importTable[i], true
		}
	}
	return nil, false
}

var importTable = append([]Import{
	{ModuleRouterd, "log", params("iii"), nil, "level (0 debug, 1 info, 2 warn, 3 error), pointer, length: a line in the host's log, up to 512 bytes", 0},
	{ModuleRouterd, "metric_add", params("id"), nil, "place in the manifest's metrics, value: adds to it; a counter never falls", 0},
	{ModuleRouterd, "metric_set", params("id"), nil, "place in the manifest's metrics, value: sets a gauge", 0},
	{ModuleRouterd, "trace", params("id"), nil, "place in the manifest's traces, value: put down in the decision's record, up to 8 a decision", 0},
	{ModuleEnv, "abort", params("iiii"), nil, "message, file, line, column: AssemblyScript's abort; traps", 0},
}, wasiTable()...)

// params reads a signature: i = i32, l = i64, d = f64.
func params(s string) []ValType {
	out := make([]ValType, len(s))
	for i := range s {
		switch s[i] {
		case 'i':
			out[i] = I32
		case 'l':
			out[i] = I64
		case 'd':
			out[i] = F64
		}
	}
	return out
}
