package abi

// FuelSchedule says what each thing that a guest does costs. Guests are charged
// before they do it. Values are fuel unless said otherwise.
type FuelSchedule struct {
	Name string

	Instruction      uint64 // each instruction
	MemoryAccess     uint64 // more for each load and store
	LocalsDivisor    uint64 // each segment after a loop head, if, else, end or br_if: locals / this
	EntryBase        uint64 // each function entry
	EntryBodyDivisor uint64 // more at function entry: bytes of the body / this
	GrowPerPage      uint64 // memory.grow, each page asked for
	BulkBytesDivisor uint64 // memory.copy, fill and init: bytes / this
	TablePerElement  uint64 // table operations, each element

	BulkMaxBytes    uint64 // one bulk memory operation over this many bytes ends the call
	BulkMaxElements uint64 // one table operation over this many elements ends the call

	ImportBase         uint64 // each call of an import
	ImportBytesDivisor uint64 // more: bytes that it touches / this
	ImportPerElement   uint64 // more: each element (vector, subscription) that it handles
}

// Fuel1 is the schedule "fuel/1". A module that was measured or certified under
// another schedule must be measured again.
func Fuel1() FuelSchedule {
	return FuelSchedule{
		Name:               "fuel/1",
		Instruction:        1,
		MemoryAccess:       3,
		LocalsDivisor:      16,
		EntryBase:          1,
		EntryBodyDivisor:   16,
		GrowPerPage:        4096,
		BulkBytesDivisor:   16,
		TablePerElement:    1,
		BulkMaxBytes:       4 << 20,
		BulkMaxElements:    65_536,
		ImportBase:         500,
		ImportBytesDivisor: 16,
		ImportPerElement:   50,
	}
}

// Fuel that the host grants, in the units of the schedule.
const (
	// FuelSlice is granted at a time; between slices the host is a safepoint
	// for the collector and looks at the clock.
	FuelSlice uint64 = 10_000

	DefaultFuelBase   uint64 = 100_000    // of a call, unless the manifest says otherwise
	DefaultFuelPerRow uint64 = 1_500      // more for each row
	DefaultFuelCap    uint64 = 10_000_000 // the operator's cap of a call

	FuelSetUp     uint64 = 200_000_000 // start section, _initialize, rp_configure and rp_bind together
	FuelLastError uint64 = 10_000      // rp_last_error
	FuelIdle      uint64 = 50_000_000  // rp_idle
)

// ImportPrice is what one call of an import costs that touches that many bytes
// and elements. Divisions round down.
func (s FuelSchedule) ImportPrice(bytes, elements uint32) uint64 {
	return s.ImportBase + uint64(bytes)/s.ImportBytesDivisor + uint64(elements)*s.ImportPerElement
}

// CallBudget is the fuel of one call over rows rows: min(ceiling, base + rows ×
// perRow), without overflow.
func CallBudget(base, perRow, ceiling uint64, rows int) uint64 {
	if rows > 0 && perRow > 0 && uint64(rows) > ceiling/perRow {
		return ceiling
	}
	sum := uint64(max(rows, 0)) * perRow
	if base > ceiling || sum > ceiling-base {
		return ceiling
	}
	return base + sum
}
