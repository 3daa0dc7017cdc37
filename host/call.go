package host

import (
	"errors"
	"fmt"
	"math"
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
	reasonCapacity   = "capacity"
	reasonImport     = "bad_import_argument"
	reasonAbort      = "abort"
	reasonExit       = "exit"
	reasonTrap       = "trap"
	reasonMemoryGone = "memory"
	reasonStack      = "stack"
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
	}
	for _, e := range engineReasons {
		out = append(out, e.reason)
	}
	return out
}

// scoreCall is one rp_score: fill, call, check. in is good for another call
// only when fault is nil.
func (in *instance) scoreCall(f *filler, t *policy.Table, budget uint64, limit time.Duration) (code abi.GuestCode, used uint64, fault *policy.Fault) {
	if !in.view() {
		return 0, 0, &policy.Fault{Code: string(abi.ETrap), Reason: reasonMemoryGone, Detail: "the frame is outside the memory", Counts: true}
	}
	f.fill(in, t)
	in.begin(budget, limit)
	in.stack[0] = uint64(in.frame)
	in.busy = in.native
	err := in.score.CallWithStack(in.carrier, in.stack[:])
	used = in.used()
	if err == nil && in.native.size() > maxNativeStack {
		err = errStack
	}
	if err != nil {
		fault = in.trapFault(err, budget, used)
		return 0, used, fault
	}
	code = abi.GuestCode(int32(in.stack[0]))
	if !in.view() {
		return code, used, &policy.Fault{Code: string(abi.ETrap), Reason: reasonMemoryGone, Detail: "the frame is outside the memory", Counts: true, Fuel: used}
	}
	if fault = in.codeFault(code); fault != nil {
		fault.Fuel = used
	}
	return code, used, fault
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
	case errors.Is(err, errBadPointer):
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

// codeFault checks the returned code and the out-flags.
func (in *instance) codeFault(code abi.GuestCode) *policy.Fault {
	switch {
	case code < 0:
		return &policy.Fault{Code: string(abi.ETrap), Reason: reasonGuest, Detail: in.guestError("rp_score", code), Counts: true}
	case code > abi.GuestAbstain:
		return &policy.Fault{
			Code: string(abi.ETrap), Reason: reasonBadCode, Counts: true,
			Detail: fmt.Sprintf("rp_score returned %d; allowed: 0, 1 or a negative code", int32(code)),
		}
	}
	b := in.bytes[abi.OffOutFlags:]
	if flags := uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 | uint32(b[3])<<24; abi.OutFlags(flags)&^abi.KnownOutFlags != 0 {
		return &policy.Fault{
			Code: string(abi.EPick), Reason: reasonOutFlags, Counts: true,
			Detail: fmt.Sprintf("out-flags %#x; allowed: %#x", flags, uint32(abi.KnownOutFlags)),
		}
	}
	return nil
}

// take copies the scores out and checks them. It returns how many were no
// opinion and became the median.
func (in *instance) take(l *abi.Layout, scores []float64, bounds *abi.Range) (cleaned int, fault *policy.Fault) {
	copy(scores, in.f64[l.Scores/8:])
	odd := false
	for row, v := range scores {
		if v-v != 0 { // NaN or an infinity
			if math.Float64bits(v) == abi.UnwrittenBits {
				return 0, &policy.Fault{
					Code: string(abi.EUnwritten), Reason: reasonUnwritten, Counts: true,
					Detail: fmt.Sprintf("row %d of %d was not written", row, len(scores)),
				}
			}
			odd = true
			continue
		}
		if bounds != nil && (v < bounds.Min || v > bounds.Max) {
			return 0, &policy.Fault{
				Code: string(abi.ERange), Reason: reasonRange, Counts: true,
				Detail: fmt.Sprintf("row %d has score %v; allowed: %v to %v", row, v, bounds.Min, bounds.Max),
			}
		}
		scores[row] = v + 0 // −0 becomes 0
	}
	if !odd {
		return 0, nil
	}
	var ok bool
	in.spare, cleaned, ok = policy.Clean(scores, in.spare)
	if !ok {
		return 0, &policy.Fault{
			Code: string(abi.ENaN), Reason: reasonNaN, Counts: true,
			Detail: fmt.Sprintf("%d of %d rows have no finite score", cleaned, len(scores)),
		}
	}
	return cleaned, nil
}
