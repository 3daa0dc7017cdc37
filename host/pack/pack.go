// Package pack finishes a guest module for use: it appends the manifest and
// writes the fuel limits that the module needs, from a measurement, where the
// manifest does not declare more. It starts no goroutine and keeps nothing.
//
//	wasm, report, err := pack.Pack(ctx, compiled, manifest, nil)
package pack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/host"
	"github.com/routerd/routerd/plugins/abi"
)

// fuelStep is what limits are rounded up to, so that small changes of a module
// leave its manifest as it was.
const fuelStep = 1000

// Report says what was measured and written.
type Report struct {
	Digest   string       // of the packed module
	Size     int          // bytes
	Measured host.Measure // fuel by rows, the most of all frames
	// FuelBase and FuelPerRow are what was written. Together they cover twice
	// what was measured.
	FuelBase   uint64
	FuelPerRow uint64
	// BaseDeclared and PerRowDeclared tell that the limit is the manifest's own,
	// which is larger than what the measurement asks for.
	BaseDeclared   bool
	PerRowDeclared bool
}

// Pack returns wasm with its manifest as a custom section, in place of one that
// is there. The manifest's fuel limits become twice what the frames of the
// self-test used: one configuration was measured, so that a limit that the
// manifest declares itself stays when it is larger. Its memory and row limits
// stay. Request headers that the manifest reads are allowed meanwhile, except those
// that no router may list. config is what the module is configured with meanwhile; nil for {}. The
// module is compiled and run in this process: it is the caller's own, not a
// stranger's. An error is a *host.LoadError, *abi.ManifestError or
// *fleet.FieldError where the module or manifest is at fault.
func Pack(ctx context.Context, wasm, manifest []byte, config json.RawMessage) ([]byte, *Report, error) {
	m, err := abi.ParseManifest(manifest)
	if err != nil {
		return nil, nil, fmt.Errorf("pack module: %w", err)
	}
	own, err := declared(manifest, m.Limits)
	if err != nil {
		return nil, nil, fmt.Errorf("pack module: %w", err)
	}
	m.Limits.FuelBase, m.Limits.FuelPerRow = abi.MaxFuelBase, 0
	trial, err := sealed(wasm, m)
	if err != nil {
		return nil, nil, err
	}
	headers, err := headersOf(m)
	if err != nil {
		return nil, nil, fmt.Errorf("pack module: %w", err)
	}
	measured, err := measure(ctx, trial, config, headers)
	if err != nil {
		return nil, nil, fmt.Errorf("pack module: measure: %w", err)
	}
	base, perRow := measured.Declare()
	base = (base + fuelStep) / fuelStep * fuelStep
	m.Limits.FuelBase, m.Limits.FuelPerRow = max(base, own.base), max(perRow, own.perRow)
	out, err := sealed(wasm, m)
	if err != nil {
		return nil, nil, err
	}
	return out, &Report{
		Digest: host.Digest(out), Size: len(out), Measured: measured,
		FuelBase: m.Limits.FuelBase, FuelPerRow: m.Limits.FuelPerRow,
		BaseDeclared: own.base > base, PerRowDeclared: own.perRow > perRow,
	}, nil
}

// fuel is a pair of limits; 0 where there is none.
type fuel struct{ base, perRow uint64 }

// declared returns the fuel limits that the manifest itself names, not those
// that parsing filled in.
func declared(manifest []byte, parsed abi.Limits) (fuel, error) {
	var named struct {
		Limits struct {
			FuelBase   json.RawMessage `json:"fuel_base"`
			FuelPerRow json.RawMessage `json:"fuel_per_row"`
		} `json:"limits"`
	}
	if err := json.Unmarshal(manifest, &named); err != nil {
		return fuel{}, fmt.Errorf("read limits: %w", err)
	}
	var out fuel
	if named.Limits.FuelBase != nil {
		out.base = parsed.FuelBase
	}
	if named.Limits.FuelPerRow != nil {
		out.perRow = parsed.FuelPerRow
	}
	return out, nil
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

// headersOf names the request headers that the manifest reads: the router that the
// module is for must list them, the one that measures it lists what it needs.
// One that no router may list is a *fleet.FieldError.
func headersOf(m *abi.Manifest) (names []string, err error) {
	for i, f := range m.RequestFields {
		name, ok := strings.CutPrefix(f, abi.HeaderPrefix)
		if !ok || slices.Contains(names, name) {
			continue
		}
		names = append(names, name)
		if allowed := abi.HeaderRefused(names, len(names)-1); allowed != "" {
			return nil, &fleet.FieldError{Field: fmt.Sprintf("request_fields[%d]", i), Value: f, Allowed: allowed}
		}
	}
	return names, nil
}

func measure(ctx context.Context, wasm []byte, config json.RawMessage, headers []string) (m host.Measure, err error) {
	cfg := host.DefaultConfig()
	cfg.Headers = headers
	cfg.FuelCap, cfg.CallDeadline = abi.MaxFuelBase, 10*time.Second
	rt, err := host.New(cfg, slog.New(slog.DiscardHandler), nil)
	if err != nil {
		return host.Measure{}, err
	}
	defer func() { err = errors.Join(err, rt.Close()) }()
	return rt.Measure(ctx, wasm, config)
}
