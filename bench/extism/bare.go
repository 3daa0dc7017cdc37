package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"unsafe"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/host"
	"github.com/routerd/routerd/plugins/abi"
)

// bare calls a module as it was written, by the engine alone: not metered, one
// instance, nothing of what it returns is checked but the code. It fills the
// frame as the product does. For one goroutine.
type bare struct {
	engine  wazero.Runtime
	mod     api.Module
	score   api.Function
	info    *host.Info
	columns []abi.Column
	fields  []bareField

	layout *abi.Layout
	frame  uint32
	stack  [1]uint64
	ones   []byte
	ids    []byte
	unset  []float64
}

var _ policy.Scorer = (*bare)(nil)

// bareField is a request field: of the table, or a value of the configuration.
type bareField struct {
	ofTable bool
	field   abi.Field
	value   float64
}

// bareRows is how many rows the frame has: the largest table of the comparison.
const bareRows = 4096

func newBare(ctx context.Context, wasm []byte) (*bare, error) {
	info, err := host.Inspect(wasm)
	if err != nil {
		return nil, err
	}
	b := &bare{info: info, engine: wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfig().WithDebugInfoEnabled(false))}
	if err := b.resolve(); err != nil {
		return nil, err
	}
	if _, err := wasi_snapshot_preview1.Instantiate(ctx, b.engine); err != nil {
		return nil, err
	}
	if b.mod, err = b.engine.InstantiateWithConfig(ctx, wasm, wazero.NewModuleConfig().WithStartFunctions("_initialize")); err != nil {
		return nil, err
	}
	if b.score = b.mod.ExportedFunction("rp_score"); b.score == nil {
		return nil, errors.New("no scorer")
	}
	return b, b.bind(ctx)
}

// resolve looks up once what is filled in each call.
func (b *bare) resolve() error {
	config, err := defaults(b.info.Manifest.ConfigSchema)
	if err != nil {
		return err
	}
	for _, c := range b.info.Manifest.Columns {
		std, ok := abi.ColumnByName(c.Name)
		if !ok {
			return fmt.Errorf("no column %q", c.Name)
		}
		b.columns = append(b.columns, std)
	}
	for _, name := range b.info.Manifest.RequestFields {
		f := bareField{value: config[name]}
		f.field, f.ofTable = abi.FieldByName(name)
		b.fields = append(b.fields, f)
	}
	return nil
}

// defaults are the default values of a configuration's properties.
func defaults(schema json.RawMessage) (map[string]float64, error) {
	var s struct {
		Properties map[string]struct{ Default float64 }
	}
	if err := json.Unmarshal(schema, &s); err != nil {
		return nil, fmt.Errorf("read configuration schema: %w", err)
	}
	values := map[string]float64{}
	for name, p := range s.Properties {
		values["config."+name] = p.Default
	}
	return values, nil
}

// bind configures the module and gives it its frame.
func (b *bare) bind(ctx context.Context) error {
	const config = "{}"
	at, err := b.call(ctx, "rp_alloc", uint64(len(config)))
	if err != nil {
		return err
	}
	b.mod.Memory().WriteString(uint32(at), config)
	if err := b.setUp(ctx, "rp_configure", at, uint64(len(config))); err != nil {
		return err
	}
	present := slices.Repeat([]bool{true}, len(b.columns))
	if b.layout, err = abi.NewLayout(abi.LayoutSpec{Columns: present, Fields: len(b.fields), Capacity: bareRows}); err != nil {
		return err
	}
	if at, err = b.call(ctx, "rp_alloc", uint64(b.layout.Size)); err != nil {
		return err
	}
	b.frame = uint32(at)
	b.ones, b.ids, b.unset = make([]byte, bareRows), make([]byte, 4*bareRows), make([]float64, bareRows)
	for row := range bareRows {
		b.ones[row] = 1
		b.ids[4*row], b.ids[4*row+1] = byte(row), byte(row>>8)
		b.unset[row] = math.Float64frombits(abi.UnwrittenBits)
	}
	bytes, _, err := b.view()
	if err != nil {
		return err
	}
	b.layout.PutHeader(bytes)
	return b.setUp(ctx, "rp_bind", at, bareRows)
}

// setUp calls what returns a code.
func (b *bare) setUp(ctx context.Context, name string, args ...uint64) error {
	code, err := b.call(ctx, name, args...)
	if err == nil && code != 0 {
		err = fmt.Errorf("%s: code %d", name, int32(code))
	}
	return err
}

func (b *bare) call(ctx context.Context, name string, args ...uint64) (uint64, error) {
	out, err := b.mod.ExportedFunction(name).Call(ctx, args...)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", name, err)
	}
	return out[0], nil
}

// view is the frame as bytes and as numbers.
func (b *bare) view() ([]byte, []float64, error) {
	bytes, ok := b.mod.Memory().Read(b.frame, b.layout.Size)
	if !ok {
		return nil, nil, errors.New("the frame is outside the memory")
	}
	return bytes, unsafe.Slice((*float64)(unsafe.Pointer(unsafe.SliceData(bytes))), len(bytes)/8), nil
}

// Columns are what the manifest declares.
func (b *bare) Columns() (set policy.ColumnSet) {
	set.AddStd(b.columns...)
	return set
}

// Score fills the frame, calls the guest and copies its scores.
func (b *bare) Score(ctx context.Context, t *policy.Table, scores []float64, _ *policy.StageReport) (policy.Verdict, error) {
	bytes, f64, err := b.view()
	if err != nil {
		return 0, err
	}
	n, l := t.Len(), b.layout
	l.PutHeader(bytes)
	l.PutCall(bytes, n, t.Seed, abi.Flags(t.Flags), false)
	copy(bytes[l.Mask:], b.ones[:n])
	copy(bytes[l.RowIDs:], b.ids[:4*n])
	copy(f64[l.Scores/8:], b.unset[:n])
	b.fill(t, f64)
	b.stack[0] = uint64(b.frame)
	if err := b.score.CallWithStack(ctx, b.stack[:]); err != nil {
		return 0, err
	}
	if code := int32(b.stack[0]); code != 0 {
		return 0, fmt.Errorf("rp_score: code %d", code)
	}
	copy(scores, f64[l.Scores/8:])
	return policy.Answered, nil
}

func (b *bare) fill(t *policy.Table, f64 []float64) {
	request := f64[b.layout.Request/8:]
	for i := range b.fields {
		request[i] = b.fields[i].value
		if b.fields[i].ofTable {
			request[i] = t.Field(b.fields[i].field)
		}
	}
	for i, c := range b.columns {
		copy(f64[b.layout.Columns[i]/8:], t.Column(c))
	}
}

// CheckOverrides knows none.
func (b *bare) CheckOverrides(map[string]json.RawMessage) ([]string, error) { return nil, nil }

// Close ends the engine.
func (b *bare) Close() error { return b.engine.Close(context.Background()) }
