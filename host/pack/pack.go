// Package pack finishes a guest module for use: it appends the manifest and
// writes the fuel limits that the module needs, from a measurement. It starts no
// goroutine and keeps nothing.
//
//	wasm, report, err := pack.Pack(ctx, compiled, manifest, nil)
package pack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/routerd/routerd/host"
	"github.com/routerd/routerd/plugins/abi"
)

// fuelStep is what limits are rounded up to, so that small changes of a module
// leave its manifest as it was.
const fuelStep = 1000

// Report says what was measured and written.
type Report struct {
	Digest     string       // of the packed module
	Size       int          // bytes
	Measured   host.Measure // fuel by rows, the most of all frames
	FuelBase   uint64       // written: with FuelPerRow twice what was measured
	FuelPerRow uint64
}

// Pack returns wasm with its manifest as a custom section, in place of one that
// is there. The manifest's fuel limits are replaced by twice what the frames of
// the self-test used, its memory and row limits stay. config is what the module
// is configured with meanwhile; nil for {}. The module is compiled and run in
// this process: it is the caller's own, not a stranger's. An error is a
// *host.LoadError or *abi.ManifestError where the module or manifest is at
// fault.
func Pack(ctx context.Context, wasm, manifest []byte, config json.RawMessage) ([]byte, *Report, error) {
	m, err := abi.ParseManifest(manifest)
	if err != nil {
		return nil, nil, fmt.Errorf("pack module: %w", err)
	}
	m.Limits.FuelBase, m.Limits.FuelPerRow = abi.MaxFuelBase, 0
	trial, err := sealed(wasm, m)
	if err != nil {
		return nil, nil, err
	}
	measured, err := measure(ctx, trial, config)
	if err != nil {
		return nil, nil, fmt.Errorf("pack module: measure: %w", err)
	}
	base, perRow := measured.Declare()
	m.Limits.FuelBase, m.Limits.FuelPerRow = (base+fuelStep)/fuelStep*fuelStep, perRow
	out, err := sealed(wasm, m)
	if err != nil {
		return nil, nil, err
	}
	return out, &Report{
		Digest: host.Digest(out), Size: len(out), Measured: measured,
		FuelBase: m.Limits.FuelBase, FuelPerRow: m.Limits.FuelPerRow,
	}, nil
}

func sealed(wasm []byte, m *abi.Manifest) ([]byte, error) {
	b, err := m.Encode()
	if err != nil {
		return nil, fmt.Errorf("pack module: %w", err)
	}
	out, err := abi.AppendManifest(wasm, b)
	if err != nil {
		return nil, fmt.Errorf("pack module: %w", err)
	}
	return out, nil
}

func measure(ctx context.Context, wasm []byte, config json.RawMessage) (m host.Measure, err error) {
	cfg := host.DefaultConfig()
	cfg.FuelCap, cfg.CallDeadline = abi.MaxFuelBase, 10*time.Second
	rt, err := host.New(cfg, slog.New(slog.DiscardHandler), nil)
	if err != nil {
		return host.Measure{}, err
	}
	defer func() { err = errors.Join(err, rt.Close()) }()
	return rt.Measure(ctx, wasm, config)
}
