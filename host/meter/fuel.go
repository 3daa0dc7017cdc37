package meter

import "github.com/routerd/routerd/plugins/abi"

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

// Fuel1 is the schedule fuel/1 (ABI §8), by which everything here is charged.
// It is a constant in all but syntax.
var Fuel1 = abi.Fuel1()

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
