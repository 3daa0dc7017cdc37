package host

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/plugins/abi"
)

// Reasons of faults: the values of a metric's label.
const (
	reasonFuel       = "fuel"
	reasonDeadline   = "deadline"
	reasonUnwritten  = "unwritten"
	reasonNaN        = "nan"
	reasonRange      = "range"
	reasonGuest      = "guest_error"
	reasonBadCode    = "bad_code"
	reasonOutFlags   = "out_flags"
	reasonPoolWait   = "pool_wait"
	reasonNoMemory   = "memory_limit" // the host's, not the guest's own
	reasonCapacity   = "capacity"
	reasonImport     = "bad_import_argument"
	reasonAbort      = "abort"
	reasonExit       = "exit"
	reasonTrap       = "trap"
	reasonMemoryGone = "memory"
	reasonStack      = "stack"
	reasonMask       = "mask"
	reasonPick       = "pick"
	reasonOtherBits  = "nondeterministic"
)

// engineReasons maps the start of an engine's trap message to a reason.
var engineReasons = [...]struct{ text, reason string }{
	{"unreachable", "unreachable"},
	{"out of bounds memory access", "out_of_bounds"},
	{"integer divide by zero", "divide_by_zero"},
	{"integer overflow", "integer_overflow"},
	{"invalid conversion to integer", "conversion"},
	{"invalid table access", "table_access"},
	{"indirect call type mismatch", "indirect_call"},
	{"null reference", "null_reference"},
	{"stack overflow", "stack_overflow"},
}

// reasons lists every reason, for metrics.
func reasons() []string {
	out := []string{
		reasonFuel, reasonDeadline, reasonUnwritten, reasonNaN, reasonRange, reasonGuest, reasonBadCode, reasonOutFlags,
		reasonPoolWait, reasonCapacity, reasonImport, reasonAbort, reasonExit, reasonTrap, reasonMemoryGone, reasonStack,
		reasonMask, reasonPick, reasonOtherBits, reasonNoMemory,
	}
	for _, e := range engineReasons {
		out = append(out, e.reason)
	}
	return out
}

// call is what one call of a guest is made from.
type call struct {
	kind   abi.Kind
	number int // of the kind
	table  *policy.Table
	mask   []byte // a byte a row, 1 for kept; nil for all kept
	budget uint64
	limit  time.Duration // on the wall clock; 0 for none
	quiet  bool          // nothing of it is to be seen outside
}

// run makes one call: fill, call, check the code. The instance's frame has room
// for the table. in is good for another call only when fault is nil.
func (in *instance) run(c *call) (code abi.GuestCode, used uint64, fault *policy.Fault) {
	if !in.view() {
		return 0, 0, memoryGone(0)
	}
	size := in.size
	in.refused = in.region.refused
	in.shape.filler.fill(in, c.table, c.mask)
	in.begin(c.budget, c.limit)
	in.said, in.quiet = nil, c.quiet
	in.stack[0] = uint64(in.frame)
	e := &in.entry[c.number]
	in.busy = e.native
	err := e.f.CallWithStack(in.carrier, in.stack[:])
	used = in.used()
	if err == nil && e.native.size() > maxNativeStack {
		err = errStack
	}
	if err != nil {
		return 0, used, in.trapFault(err, c.budget, used)
	}
	code = abi.GuestCode(int32(in.stack[0]))
	if !in.view() {
		return code, used, memoryGone(used)
	}
	if in.size != size {
		in.grew(in.size - size)
	}
	if fault = in.codeFault(c.kind, code); fault != nil {
		fault.Fuel = used
	}
	return code, used, fault
}

// errFrameGone is that a guest's memory no longer holds its frame.
var errFrameGone = errors.New("the frame is outside the memory")

func memoryGone(used uint64) *policy.Fault {
	return &policy.Fault{Code: string(abi.ETrap), Reason: reasonMemoryGone, Detail: errFrameGone.Error(), Counts: true, Fuel: used}
}

// trapFault says how a call ended that did not return.
func (in *instance) trapFault(err error, budget, used uint64) *policy.Fault {
	f := &policy.Fault{Code: string(abi.ETrap), Counts: true, Fuel: used}
	var abort *guestAbort
	var exit *guestExit
	switch {
	case errors.Is(err, errFuel):
		f.Code, f.Reason = string(abi.EFuel), reasonFuel
		f.Fuel = budget
		f.Detail = fmt.Sprintf("used up its budget of %d fuel; %s", budget, in.trapText(err))
		return f
	case errors.Is(err, errDeadline):
		f.Code, f.Reason = string(abi.EFuel), reasonDeadline
		f.Detail = fmt.Sprintf("ran past its deadline after %d fuel; %s", used, in.trapText(err))
		return f
	case errors.Is(err, errStack):
		f.Reason = reasonStack
		f.Detail = fmt.Sprintf("needed more than %d MiB of native stack; %s", maxNativeStack>>20, in.trapText(err))
		return f
	case errors.Is(err, errBadPointer), errors.Is(err, errBadID):
		f.Reason = reasonImport
	case errors.As(err, &abort):
		f.Reason = reasonAbort
	case errors.As(err, &exit):
		f.Reason = reasonExit
	default:
		f.Reason = reasonTrap
		text := strings.TrimPrefix(err.Error(), "wasm error: ")
		for _, e := range engineReasons {
			if strings.HasPrefix(text, e.text) {
				f.Reason = e.reason
				break
			}
		}
	}
	f.Detail = in.trapText(err)
	return f
}

// excused is the fault of a call in which the host refused the guest memory:
// whatever it made of that, it is the host's doing.
func (in *instance) excused(f *policy.Fault) *policy.Fault {
	if in.region.refused == in.refused {
		return f
	}
	return &policy.Fault{
		Code: string(abi.EPool), Reason: reasonNoMemory, Fuel: f.Fuel,
		Detail: "its memory could not grow: " + errMemory.Error() + "; then " + f.Reason + ": " + f.Detail,
	}
}

// codeFault checks the returned code and the out-flags.
func (in *instance) codeFault(kind abi.Kind, code abi.GuestCode) *policy.Fault {
	switch {
	case code < 0:
		return &policy.Fault{Code: string(abi.ETrap), Reason: reasonGuest, Detail: in.guestError(kind.Export(), code), Counts: true}
	case code > abi.GuestAbstain:
		return &policy.Fault{
			Code: string(abi.ETrap), Reason: reasonBadCode, Counts: true,
			Detail: fmt.Sprintf("%s returned %d; allowed: 0, 1 or a negative code", kind.Export(), int32(code)),
		}
	}
	if flags := in.outFlags(); flags&^abi.KnownOutFlags != 0 {
		return &policy.Fault{
			Code: string(abi.EPick), Reason: reasonOutFlags, Counts: true,
			Detail: fmt.Sprintf("out-flags %#x; allowed: %#x", uint32(flags), uint32(abi.KnownOutFlags)),
		}
	}
	return nil
}

func (in *instance) outFlags() abi.OutFlags {
	return abi.OutFlags(binary.LittleEndian.Uint32(in.bytes[abi.OffOutFlags:]))
}
