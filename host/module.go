package host

import (
	"context"
	"encoding/hex"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/tetratelabs/wazero"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/host/meter"
	"github.com/routerd/routerd/plugins/abi"
)

// module is a loaded module: checked, metered and compiled. Immutable.
type module struct {
	digest   string
	manifest *abi.Manifest
	names    meter.FunctionNames // for people
	compiled wazero.CompiledModule
	schema   *configSchema // nil: takes no configuration
	columns  policy.ColumnSet
	series   *guestSeries
	guests   *guestCollector // where series is published
	minPages uint32
	maxPages uint32 // what an instance's memory may grow to
	start    bool
	measured atomic.Pointer[Measure] // by the last self-test; nil before the first
}

// Info is what inspecting a module tells.
type Info struct {
	Digest   string // "sha256:HEX"
	Size     int
	Manifest *abi.Manifest
	Imports  []string // module.name
	Exports  []string
}

// Digest names bytes: "sha256:HEX".
func Digest(b []byte) string {
	return "sha256:" + hex.EncodeToString(sumInPieces(b))
}

// Inspect checks everything about a module that needs no engine: size, section
// walk, manifest, imports and exports, and that this version runs it. An error
// is a *LoadError.
func Inspect(wasm []byte) (*Info, error) {
	m, manifest, err := inspect(wasm, "")
	if err != nil {
		return nil, err
	}
	info := &Info{Digest: Digest(wasm), Size: len(wasm), Manifest: manifest}
	for _, i := range m.Imports {
		info.Imports = append(info.Imports, i.Module+"."+i.Name)
	}
	for _, e := range m.Exports {
		info.Exports = append(info.Exports, e.Name)
	}
	return info, nil
}

// inspect is ABI §7 steps 1 and 2 and what of the later ones needs no engine.
func inspect(wasm []byte, digest string) (*meter.Module, *abi.Manifest, error) {
	lim := meter.DefaultLimits()
	if len(wasm) > lim.ModuleBytes {
		return nil, nil, refuse(StepSize, abi.ESize, fmt.Sprintf("%d bytes", len(wasm)), fmt.Sprintf("up to %d bytes", lim.ModuleBytes))
	}
	if have := Digest(wasm); digest != "" && have != digest {
		return nil, nil, refuse(StepDigest, abi.EDigest, "bytes with digest "+have, digest)
	}
	m, err := meter.Decode(wasm, lim)
	if err != nil {
		return nil, nil, fromMeter(err)
	}
	manifest, err := parseManifest(m)
	if err != nil {
		return nil, nil, err
	}
	if err := checkImports(m, manifest.Imports); err != nil {
		return nil, nil, err
	}
	if err := checkExports(m, manifest); err != nil {
		return nil, nil, err
	}
	return m, manifest, nil
}

func parseManifest(m *meter.Module) (*abi.Manifest, error) {
	if m.Manifest == nil {
		return nil, refuse(StepManifest, abi.EManifest, "no custom section "+abi.ManifestSection, "exactly one")
	}
	manifest, err := abi.ParseManifest(m.Manifest)
	if err != nil {
		return nil, refuse(StepManifest, abi.EManifest, err.Error(), "")
	}
	if manifest.Minor > hostMinor {
		return nil, refuse(StepManifest, abi.EABI, fmt.Sprintf("minor version %d of ABI 1", manifest.Minor), fmt.Sprintf("up to %d", hostMinor))
	}
	for _, check := range []func(*abi.Manifest) (what, allowed string){misplaced, undeclared, unpublishable} {
		if what, allowed := check(manifest); what != "" {
			return nil, refuse(StepManifest, abi.EManifest, clip(what, 200), allowed)
		}
	}
	return manifest, nil
}

// misplaced finds what only modules of another kind may ask for.
func misplaced(m *abi.Manifest) (what, allowed string) {
	for _, c := range m.Columns {
		if c.Name == abi.ColUpstreamScore.String() && !m.HasKind(abi.KindPicker) {
			return "column " + c.Name + " is for pickers only", "the other columns"
		}
	}
	return "", ""
}

// knownExports are what the host calls, with their signatures: i is i32, l is i64.
func knownExports(m *abi.Manifest) map[string]string {
	known := map[string]string{
		"rp_abi_v1": "->i", "rp_alloc": "i->i", "rp_configure": "ii->i", "rp_bind": "ii->i",
		"rp_last_error": "->l", "rp_idle": "->", "_initialize": "->",
	}
	for _, k := range m.Kinds {
		known[k.Export()] = "i->i"
	}
	return known
}

// checkExports compares the module's exports with what its kinds need; it
// reports every refusal at once.
func checkExports(m *meter.Module, manifest *abi.Manifest) error {
	var wrong []string
	for name, sig := range knownExports(manifest) {
		t, ok := m.Function(name)
		switch {
		case !ok && (name == "rp_last_error" || name == "rp_idle" || name == "_initialize"):
		case !ok:
			wrong = append(wrong, name+" is missing")
		case signature(t) != sig:
			wrong = append(wrong, name+" has the signature "+t.String())
		}
	}
	memory := false
	for _, e := range m.Exports {
		memory = memory || e.Name == "memory" && e.Kind == meter.KindMemory
		for _, k := range abi.Kinds() {
			if e.Name == k.Export() && !manifest.HasKind(k) {
				wrong = append(wrong, e.Name+" is exported but kind "+string(k)+" is not declared")
			}
		}
	}
	if !memory || !m.HasMemory {
		wrong = append(wrong, "memory is missing")
	}
	if len(wrong) == 0 {
		return nil
	}
	return refuse(StepExports, abi.EExport, sortedList(wrong), "the exports of ABI §2 for the declared kinds")
}

func signature(t meter.FuncType) string {
	var b strings.Builder
	write := func(ts []meter.ValueType) {
		for _, v := range ts {
			switch v {
			case meter.I32:
				b.WriteByte('i')
			case meter.I64:
				b.WriteByte('l')
			default:
				b.WriteByte('?')
			}
		}
	}
	write(t.Params)
	b.WriteString("->")
	write(t.Results)
	return b.String()
}

// load is ABI §7 up to the compiled module.
func (r *Runtime) load(ctx context.Context, wasm []byte, digest string) (*module, error) {
	m, manifest, err := inspect(wasm, digest)
	if err != nil {
		return nil, err
	}
	if err := r.checkHeaders(manifest); err != nil {
		return nil, err
	}
	if err := r.guests.checkNames(manifest); err != nil {
		return nil, err
	}
	pages := min(manifest.Limits.MemoryPages, r.cfg.MemoryPages)
	if m.MemoryMin > pages {
		return nil, refuse(StepManifest, abi.ELimit, fmt.Sprintf("memory of at least %d pages", m.MemoryMin), fmt.Sprintf("%d pages", pages))
	}
	out := &module{digest: digest, manifest: manifest, names: m.FunctionNames(), minPages: m.MemoryMin, maxPages: pages, start: m.HasStart}
	if out.schema, err = compileSchema(manifest.ConfigSchema); err != nil {
		return nil, err
	}
	for _, c := range manifest.Columns {
		out.columns.Add(c.Name) // one that this host does not know is absent
	}
	if out.compiled, err = r.build(ctx, wasm, m, pages); err != nil {
		return nil, err
	}
	out.series, out.guests = newGuestSeries(manifest, digest), &r.guests
	r.guests.add(out.series)
	return out, nil
}

func (m *module) close() error {
	m.guests.remove(m.series)
	if err := m.compiled.Close(context.Background()); err != nil {
		return fmt.Errorf("close module %s: %w", m.digest, err)
	}
	return nil
}

// budget is the fuel of one call under the operator's cap.
func (m *module) budget(ceiling uint64, rows int) uint64 {
	return abi.CallBudget(m.manifest.Limits.FuelBase, m.manifest.Limits.FuelPerRow, ceiling, rows)
}
