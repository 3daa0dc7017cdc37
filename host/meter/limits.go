package meter

// Limits are the static limits of ABI §7, checked before any engine sees a module.
// Each is the largest accepted value. The zero value accepts nothing; start from DefaultLimits.
type Limits struct {
	ModuleBytes       int // whole module
	ManifestBytes     int // content of the routerd.manifest section
	CustomSections    int // number of custom sections
	Types             int // entries in the type section
	Params            int // parameters of one function type
	Results           int // results of one function type
	TypeValues        int // sum over types of parameters and results: an engine never forgets a type
	BlockTypeValues   int // parameters + results of one block type
	Imports           int // entries in the import section
	Exports           int // entries in the export section
	NameBytes         int // one import or export name
	Functions         int // functions defined in the module
	BodyBytes         int // one function body, local declarations included
	LocalsPerFunction int // locals that one function declares
	LocalsBytes       int // sum over functions of declared locals × 8
	Nesting           int // blocks open at once inside one body
	Loops             int // loops of one function: compilers take time by their square
	BrTable           int // labels of one br_table, default not counted
	Globals           int // globals defined in the module
	TableEntries      int // minimum and maximum of the table
	ElementSegments   int // element segments
	ElementEntries    int // sum over element segments of entries
	DataSegments      int // data segments
	DataBytes         int // sum over data segments of bytes
	OutputBytes       int // all bodies after the rewrite, which can be 20 times as long as before
}

// DefaultLimits returns the numbers of ABI §7.2.
func DefaultLimits() Limits {
	return Limits{
		ModuleBytes:       8 << 20,
		ManifestBytes:     64 << 10,
		CustomSections:    64,
		Types:             1024,
		Params:            64,
		Results:           16,
		TypeValues:        16_384,
		BlockTypeValues:   16,
		Imports:           64,
		Exports:           256,
		NameBytes:         256,
		Functions:         20_000,
		BodyBytes:         64 << 10,
		LocalsPerFunction: 1024,
		LocalsBytes:       4 << 20,
		Nesting:           1024,
		Loops:             1024, // Go's compiler makes at most 3, a C guest with vectors had 11; 8,000 take over 10 s to compile
		BrTable:           2048,
		Globals:           1024,
		TableEntries:      65_536,
		ElementSegments:   1024,
		ElementEntries:    65_536,
		DataSegments:      100_000, // the bound of the Go linker, which cuts data at runs of zeros: 35,000 for a small guest
		DataBytes:         4 << 20,
		OutputBytes:       32 << 20,
	}
}
