package host

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sort"
	"strings"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/host/meter"
	"github.com/routerd/routerd/plugins/abi"
)

// hostFunc is a function that guests import. It charges before it works; a bad
// pointer panics and so traps.
type hostFunc func(in *instance, stack []uint64)

// Traps that the host raises inside a call.
var (
	errFuel        = errors.New("fuel used up")
	errDeadline    = errors.New("call deadline passed")
	errBadPointer  = errors.New("import called with a range outside the memory")
	errBadID       = errors.New("import called with a number that the manifest has no name for")
	errStartImport = errors.New("the start section called an import other than env.abort")
)

// guestAbort is env.abort.
type guestAbort struct{ text string }

// Error says where the guest gave up.
func (e *guestAbort) Error() string { return "env.abort: " + e.text }

// guestExit is proc_exit, a trap whatever the code.
type guestExit struct{ code uint32 }

// Error tells the code.
func (e *guestExit) Error() string { return fmt.Sprintf("proc_exit(%d)", e.code) }

// instanceKey finds the running instance in a call's context. A host function
// never takes it from the engine's module argument: that is whoever called, and
// an import that is passed on could be called by another.
type instanceKey struct{}

func instanceOf(ctx context.Context) *instance {
	in, _ := ctx.Value(instanceKey{}).(*instance)
	return in
}

// linkImports instantiates the host's modules in rt: every import of the ABI's
// table, and the meter's.
func linkImports(ctx context.Context, rt wazero.Runtime) error {
	work := wasiFunctions()
	for name, f := range routerdFunctions() {
		work[name] = f
	}
	builders := map[string]wazero.HostModuleBuilder{}
	for _, m := range []string{abi.ModuleRouterd, abi.ModuleEnv, abi.ModuleWASI} {
		builders[m] = rt.NewHostModuleBuilder(m)
	}
	for _, imp := range abi.Imports() {
		f := work[imp.Name]
		switch {
		case imp.Module == abi.ModuleEnv:
			f = importAbort
		case f == nil:
			f = refusing(wasiRefusal(imp.Name))
		}
		export(builders[imp.Module], imp.Name, f, imp.Params, imp.Results, imp.Module == abi.ModuleEnv)
	}
	builders[meter.RefuelModule].NewFunctionBuilder().
		WithGoModuleFunction(api.GoModuleFunc(refuel), nil, nil).Export(meter.RefuelName)
	for _, m := range []string{abi.ModuleRouterd, abi.ModuleEnv, abi.ModuleWASI} {
		if _, err := builders[m].Instantiate(ctx); err != nil {
			return fmt.Errorf("link imports %s: %w", m, err)
		}
	}
	return nil
}

func export(b wazero.HostModuleBuilder, name string, f hostFunc, params, results []abi.ValType, inStart bool) {
	call := func(ctx context.Context, _ api.Module, stack []uint64) {
		in := instanceOf(ctx)
		if in.mod == nil && !inStart {
			panic(errStartImport)
		}
		f(in, stack)
	}
	b.NewFunctionBuilder().WithGoModuleFunction(api.GoModuleFunc(call), engineTypes(params), engineTypes(results)).Export(name)
}

func engineTypes(ts []abi.ValType) []api.ValueType {
	out := make([]api.ValueType, len(ts))
	for i, t := range ts {
		out[i] = api.ValueType(t)
	}
	return out
}

// refuel is the meter's import: the end of a slice. The start section runs
// before the host holds the instance's fuel global, so there it is taken from
// the caller, which can only be the module being started.
func refuel(ctx context.Context, caller api.Module, _ []uint64) {
	in := instanceOf(ctx)
	if in.mod == nil && in.fuel == nil {
		in.fuel, _ = caller.ExportedGlobal(meter.FuelGlobal).(api.MutableGlobal)
	}
	in.refuel()
}

func refusing(errno uint64) hostFunc {
	return func(in *instance, stack []uint64) {
		in.charge(0, 0)
		stack[0] = errno
	}
}

// routerdFunctions are those of the ABI's own module.
func routerdFunctions() map[string]hostFunc {
	return map[string]hostFunc{
		"log":        importLog,
		"metric_add": func(in *instance, stack []uint64) { in.metric(stack, false) },
		"metric_set": func(in *instance, stack []uint64) { in.metric(stack, true) },
		"trace":      importTrace,
	}
}

// metric holds a change of a metric of the manifest. Only a gauge can be set.
func (in *instance) metric(stack []uint64, set bool) {
	in.charge(0, 0)
	metrics := in.module.manifest.Metrics
	id, v := uint32(stack[0]), math.Float64frombits(stack[1])
	if uint64(id) >= uint64(len(metrics)) || set && metrics[id].Type != abi.MetricGauge {
		panic(errBadID)
	}
	if falls := metrics[id].Type == abi.MetricCounter && v < 0; v-v == 0 && !falls && !in.quiet {
		in.effects().value(id, set, v)
	}
}

// importTrace holds a value for the decision's record. What is not finite, and
// more than a record takes, is dropped.
func importTrace(in *instance, stack []uint64) {
	in.charge(0, 0)
	names := in.module.manifest.Traces
	id, v := uint32(stack[0]), math.Float64frombits(stack[1])
	if uint64(id) >= uint64(len(names)) {
		panic(errBadID)
	}
	if v-v != 0 {
		return
	}
	if e := in.effects(); len(e.traces) < abi.MaxTracesPerDecision {
		e.traces = append(e.traces, policy.Trace{Name: names[id], Value: v})
	}
}

func importLog(in *instance, stack []uint64) {
	n := uint32(stack[2])
	in.charge(min(n, abi.MaxLogBytes), 0)
	b := in.block(stack[1], uint64(n))
	in.say(int32(stack[0]), b[:min(len(b), abi.MaxLogBytes)])
}

// importAbort is AssemblyScript's abort: message and file are UTF-16 strings
// with their byte length in front.
func importAbort(in *instance, stack []uint64) {
	if in.mod == nil {
		panic(&guestAbort{text: "in the start section"})
	}
	in.charge(abi.MaxLogBytes, 0)
	panic(&guestAbort{text: fmt.Sprintf("%s at line %d", in.utf16(uint32(stack[0])), uint32(stack[2]))})
}

// checkImports compares what a module asks for with the ABI's table and with
// what its manifest names; it reports every refusal at once.
func checkImports(m *meter.Module, named []string) error {
	var wrong []string
	asked := map[string]bool{}
	for _, imp := range m.Imports {
		key := clip(imp.Module+"."+imp.Name, 128)
		known, ok := abi.ImportByName(imp.Module, imp.Name)
		switch {
		case !ok:
			wrong = append(wrong, key+" does not exist")
		case !sameSignature(imp.Type, known.Params, known.Results):
			wrong = append(wrong, key+" has the signature "+imp.Type.String())
		case imp.Module == abi.ModuleRouterd:
			asked[imp.Name] = true
		}
	}
	list := map[string]bool{}
	for _, n := range named {
		list[n] = true
		if !asked[n] {
			wrong = append(wrong, clip(n, 64)+" is in the manifest but not imported")
		}
	}
	for n := range asked {
		if !list[n] {
			wrong = append(wrong, abi.ModuleRouterd+"."+n+" is imported but not in the manifest")
		}
	}
	if len(wrong) == 0 {
		return nil
	}
	sort.Strings(wrong)
	return refuse(StepImports, abi.EImport, strings.Join(wrong, "; "), "imports of the ABI's table with their signatures, those of routerd_v1 named in the manifest")
}

func sameSignature(t meter.FuncType, params, results []abi.ValType) bool {
	return sameTypes(t.Params, params) && sameTypes(t.Results, results)
}

func sameTypes(have []meter.ValueType, want []abi.ValType) bool {
	if len(have) != len(want) {
		return false
	}
	for i := range have {
		if byte(have[i]) != byte(want[i]) {
			return false
		}
	}
	return true
}
