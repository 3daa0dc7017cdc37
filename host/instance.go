package host

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"

	"github.com/routerd/routerd/host/meter"
	"github.com/routerd/routerd/plugins/abi"
)

// pageSize is a page of guest memory, in bytes.
const pageSize = 64 << 10

// instance is one running copy of a module, bound to its frame. Owned by one
// goroutine at a time. After a fault it must not be called again: the engine
// would let it run on half-changed state.
type instance struct {
	rt     *Runtime
	module *module
	log    *guestLog
	mod    api.Module // nil until the start section has run
	mem    api.Memory
	fuel   api.MutableGlobal
	entry  [numKinds]entry // of the declared kinds
	lastEr api.Function
	tidy   api.Function // rp_idle; nil where there is none
	busy   nativeStack  // of the function that is being called
	region *allocator
	shape  *shape // of the frame it is bound to

	// carrier is not a request's context: it only carries the instance to host
	// functions, which find it there.
	carrier context.Context //nolint:containedctx // carries the instance, no request

	rest     uint64        // fuel that may still be granted in this call
	granted  uint64        // fuel granted in this call so far
	limit    time.Duration // wall clock of this call; 0 for none
	deadline time.Time     // set at the end of the first slice
	stop     *atomic.Bool  // ends the call at the next slice; nil for never

	// asker ends the call, too, where the instance serves no request.
	asker context.Context //nolint:containedctx // of the call at hand

	clock   uint64 // virtual, ns
	random  uint64 // position in the random sequence
	text    []byte // scratch of fd_write
	stack   [2]uint64
	said    *effects // of the call; nil while the guest has said nothing
	quiet   bool     // nothing of this call is to be seen outside
	calls   int      // since the last rp_idle
	tidied  uint32   // size of the memory after the last rp_idle, in bytes
	growth  growth
	refused int // growth that the host had refused before the call

	frame uint32 // start of the frame in the guest's memory
	size  uint32 // of the memory when the views were taken
	bytes []byte
	f64   []float64
	last  int // rows of the call before
	spare []float64
}

// entry is what the host calls for one kind.
type entry struct {
	f      api.Function
	native nativeStack
}

// newInstance makes an instance that is bound to a frame of the first capacity.
func (r *Runtime) newInstance(m *module, c *configuration, log *guestLog) (*instance, error) {
	sh, err := newShape(m, c, firstRows)
	if err != nil {
		return nil, err
	}
	return r.newBound(m, c, sh, terms{log: log})
}

// terms are what an instance is made under.
type terms struct {
	log   *guestLog
	stop  *atomic.Bool // ends set-up and calls at the next slice; nil for never
	aside bool         // it serves no request
	// asker ends them, too; nil for never.
	asker context.Context //nolint:containedctx // of what is made
}

// newBound makes an instance and takes it through start section, _initialize,
// rp_configure and rp_bind, all under one set-up budget. An error is a
// *LoadError unless memory is short (errMemory). What the guest said goes to the
// log at once.
func (r *Runtime) newBound(m *module, c *configuration, sh *shape, on terms) (made *instance, err error) {
	region := &allocator{budget: &r.memory, reserve: r.reserve, aside: on.aside}
	if !region.take(int64(m.minPages) * pageSize) {
		return nil, errMemory
	}
	in := &instance{
		rt: r, module: m, log: on.log, region: region, shape: sh,
		rest: abi.FuelSetUp - abi.FuelSlice, granted: abi.FuelSlice, quiet: on.log.mute, stop: on.stop, asker: on.asker,
	}
	in.carrier = context.WithValue(context.Background(), instanceKey{}, in)
	r.instances.Add(1)
	bound := false
	defer func() { // also when something panics
		in.flush()
		if bound {
			return
		}
		if region.refused > 0 {
			err = fmt.Errorf("%w: %w", errMemory, err)
		}
		in.close()
	}()
	ctx := experimental.WithMemoryAllocator(in.carrier, region)
	mod, err := r.engine.InstantiateModule(ctx, m.compiled, wazero.NewModuleConfig().WithName("").WithStartFunctions())
	if err != nil {
		return nil, in.setUpError(StepStart, "start section", err)
	}
	if err := in.adopt(mod); err != nil {
		return nil, err
	}
	if err := in.initialise(); err != nil {
		return nil, err
	}
	block, err := in.configure(c)
	if err != nil {
		return nil, err
	}
	if err := in.bind(block); err != nil {
		return nil, err
	}
	bound = true
	in.tidied = in.size
	return in, nil
}

// errMemory is that the memory of all instances together is used up.
var errMemory = errors.New("plugins.memory_limit is used up")

// adopt takes hold of what the host calls and reads.
func (in *instance) adopt(mod api.Module) error {
	in.mem = mod.Memory()
	in.fuel, _ = mod.ExportedGlobal(meter.FuelGlobal).(api.MutableGlobal)
	in.lastEr = mod.ExportedFunction("rp_last_error")
	in.tidy = mod.ExportedFunction("rp_idle")
	in.mod = mod
	whole := in.mem != nil && in.fuel != nil
	for _, k := range in.module.manifest.Kinds {
		f := mod.ExportedFunction(k.Export())
		if f == nil {
			whole = false
			continue
		}
		in.entry[kindNumber(k)] = entry{f, stackOf(f)}
	}
	if !whole {
		return refuse(StepStart, abi.ECompile, "the compiled module lacks an export", "")
	}
	return nil
}

// initialise calls _initialize where there is one, and asks for the minor
// version.
func (in *instance) initialise() error {
	if f := in.mod.ExportedFunction("_initialize"); f != nil {
		if err := in.callSetUp(f, StepStart, "_initialize"); err != nil {
			return err
		}
	}
	if err := in.callSetUp(in.mod.ExportedFunction("rp_abi_v1"), StepStart, "rp_abi_v1"); err != nil {
		return err
	}
	if minor := int32(in.stack[0]); minor < 0 || minor > hostMinor {
		return refuse(StepStart, abi.EABI, fmt.Sprintf("minor version %d of ABI 1", minor), fmt.Sprintf("up to %d", hostMinor))
	}
	return nil
}

// hostMinor is the ABI minor version that this host speaks.
const hostMinor = 0

// span is a range of guest memory.
type span struct{ start, size uint64 }

func (s span) overlaps(o span) bool { return s.start < o.start+o.size && o.start < s.start+s.size }

// configure hands the configuration over.
func (in *instance) configure(c *configuration) (span, error) {
	at, err := in.alloc(uint64(len(c.canonical)), StepConfigure)
	if err != nil {
		return span{}, err
	}
	in.mem.Write(uint32(at.start), c.canonical)
	in.stack = [2]uint64{at.start, at.size}
	if err := in.callSetUp(in.mod.ExportedFunction("rp_configure"), StepConfigure, "rp_configure"); err != nil {
		return span{}, err
	}
	if code := abi.GuestCode(int32(in.stack[0])); code != abi.GuestOK {
		return span{}, refuse(StepConfigure, abi.EConfigure, in.guestError("rp_configure", code), "0")
	}
	return at, nil
}

// bind lays the frame out in the guest's memory and tells it where.
func (in *instance) bind(config span) error {
	at, err := in.alloc(uint64(in.shape.layout.Size), StepBind)
	if err != nil {
		return err
	}
	if at.overlaps(config) {
		return refuse(StepBind, abi.EInitTrap, "rp_alloc gave the same memory twice", "memory that stays valid for the instance's life")
	}
	in.frame = uint32(at.start)
	if !in.view() {
		return refuse(StepBind, abi.EInitTrap, "the frame is outside the memory", "")
	}
	clear(in.bytes)
	in.shape.layout.PutHeader(in.bytes)
	in.stack = [2]uint64{at.start, uint64(in.shape.capacity())}
	if err := in.callSetUp(in.mod.ExportedFunction("rp_bind"), StepBind, "rp_bind"); err != nil {
		return err
	}
	if code := abi.GuestCode(int32(in.stack[0])); code != abi.GuestOK {
		return refuse(StepBind, abi.EInitTrap, in.guestError("rp_bind", code), "0")
	}
	return nil
}

// alloc asks the guest for memory and checks what it says.
func (in *instance) alloc(size uint64, step string) (span, error) {
	in.stack[0] = size
	if err := in.callSetUp(in.mod.ExportedFunction("rp_alloc"), step, "rp_alloc"); err != nil {
		return span{}, err
	}
	at := uint64(uint32(in.stack[0]))
	allowed := fmt.Sprintf("%d bytes inside the memory, 64-aligned", size)
	switch {
	case at == 0:
		return span{}, refuse(step, abi.EInitTrap, fmt.Sprintf("rp_alloc(%d) refused", size), allowed)
	case at%abi.FrameAlign != 0, at+size > uint64(in.mem.Size()):
		return span{}, refuse(step, abi.EInitTrap, fmt.Sprintf("rp_alloc(%d) returned %#x", size, at), allowed)
	}
	return span{at, size}, nil
}

// callSetUp calls an export with the arguments in in.stack under what is left
// of the set-up budget.
func (in *instance) callSetUp(f api.Function, step, name string) error {
	in.clock, in.random = 0, 0
	in.busy = stackOf(f)
	if err := f.CallWithStack(in.carrier, in.stack[:]); err != nil {
		return in.setUpError(step, name, err)
	}
	if in.busy.size() > maxNativeStack {
		return in.setUpError(step, name, errStack)
	}
	return nil
}

func (in *instance) setUpError(step, what string, err error) error {
	allowed := "an end without a trap"
	if errors.Is(err, errFuel) {
		return refuse(step, abi.EInitTrap, what+" used up its fuel", fmt.Sprintf("%d fuel for start section, _initialize, rp_configure and rp_bind together", abi.FuelSetUp))
	}
	if errors.Is(err, errStack) {
		allowed = fmt.Sprintf("%d MiB of native stack", maxNativeStack>>20)
	}
	return refuse(step, abi.EInitTrap, what+": "+in.trapText(err), allowed)
}

// view takes the views of the frame anew when the memory has changed; false
// when the frame is not inside.
func (in *instance) view() bool {
	size := in.mem.Size()
	if size == in.size {
		return true
	}
	b, ok := in.mem.Read(in.frame, in.shape.layout.Size)
	if !ok {
		return false
	}
	in.size = size
	in.bytes = b
	in.f64 = unsafe.Slice((*float64)(unsafe.Pointer(&b[0])), len(b)/8)
	return true
}

// block is a range of guest memory that an import was called with; outside the
// memory it traps.
func (in *instance) block(ptr, n uint64) []byte {
	at := uint64(uint32(ptr))
	if in.mem == nil || at+n > uint64(in.mem.Size()) {
		panic(errBadPointer)
	}
	b, ok := in.mem.Read(uint32(at), uint32(n))
	if !ok {
		panic(errBadPointer)
	}
	return b
}

// close gives everything back. The instance must not be in a call.
func (in *instance) close() {
	if in.mod != nil {
		_ = in.mod.Close(in.carrier)
	}
	in.region.free()
	in.bytes, in.f64, in.mem = nil, nil, nil
	in.rt.instances.Add(-1)
}
