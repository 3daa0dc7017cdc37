package meter

// Names that the rewrite adds to a module. A guest that uses one of them is refused.
const (
	// FuelGlobal is the exported mutable i64 that holds what is left of the current slice.
	FuelGlobal = "__fuel"
	// RefuelModule and RefuelName name the added import, of type () -> ().
	RefuelModule = "routerd_v1"
	RefuelName   = "__refuel"
)

// ManifestSection is the name of the custom section that holds the manifest.
const ManifestSection = "routerd.manifest"

// Schedule is a price list in fuel.
type Schedule struct {
	Name             string
	Instruction      uint64 // each instruction; else and end are none
	MemoryAccess     uint64 // more for a load or store, SIMD ones included
	LocalsDivisor    uint64 // a segment after loop, if, else, end or br_if costs (parameters + locals) / this more
	EntryBase        uint64 // each function entry
	EntryBodyDivisor uint64 // plus the original body's bytes / this
	GrowPerPage      uint64 // memory.grow, per page asked for
	BulkBytesDivisor uint64 // memory.copy, fill and init: length / this; a power of two
	TablePerElement  uint64 // table.copy, fill, init and grow, per element
	BulkMaxBytes     uint32 // a longer memory.copy, fill or init ends the call
	BulkMaxElements  uint32 // a longer table operation ends the call
}

// Fuel1 is the schedule fuel/1 (ABI §8). It is a constant in all but syntax.
var Fuel1 = Schedule{
	Name:             "fuel/1",
	Instruction:      1,
	MemoryAccess:     3,
	LocalsDivisor:    16,
	EntryBase:        1,
	EntryBodyDivisor: 16,
	GrowPerPage:      4096,
	BulkBytesDivisor: 16,
	TablePerElement:  1,
	BulkMaxBytes:     4 << 20,
	BulkMaxElements:  65_536,
}

// forbidden is charged for an operation that must end the call: more than any budget, and far enough
// from the ends of i64 that nothing wraps.
const forbidden = 1 << 62

// Grant is the arithmetic of the refuel import. left is the (negative) value of FuelGlobal, rest what the
// call may still be granted. It returns what to add to FuelGlobal: one slice, or as much as the debt needs
// where one charge was larger than a slice, never more than rest. ok is false when rest does not cover the
// debt: the budget is used up and the call must end, since the guest need not look again after the import
// returns.
func Grant(left int64, rest, slice uint64) (grant uint64, ok bool) {
	var debt uint64
	if left < 0 {
		debt = -uint64(left)
	}
	if debt > rest || rest == 0 {
		return 0, false
	}
	return min(max(slice, debt), rest), true
}
