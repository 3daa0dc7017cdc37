package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	extism "github.com/extism/go-sdk"

	"github.com/routerd/routerd/bench/extism/exchange"
	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/plugins/abi"
)

// plugin scores through an Extism plugin: no limits, which is its fastest form.
// For one goroutine.
type plugin struct {
	p       *extism.Plugin
	request exchange.Request
	answer  exchange.Response
}

var _ policy.Scorer = (*plugin)(nil)

func newPlugin(ctx context.Context, wasm []byte) (*plugin, error) {
	manifest := extism.Manifest{Wasm: []extism.Wasm{extism.WasmData{Data: wasm}}}
	p, err := extism.NewPlugin(ctx, manifest, extism.PluginConfig{EnableWasi: true}, nil)
	if err != nil {
		return nil, fmt.Errorf("make Extism plugin: %w", err)
	}
	return &plugin{p: p, request: exchange.Request{Config: exchange.DefaultConfig()}}, nil
}

// Columns are those of kv-aware.
func (p *plugin) Columns() policy.ColumnSet {
	var set policy.ColumnSet
	set.AddStd(
		abi.ColKVOverlapDevice, abi.ColKVOverlapHost, abi.ColKVOverlapDisk, abi.ColKVOverlapShared,
		abi.ColLoadPrefillTokens, abi.ColLoadPotentialPrefillTokens, abi.ColLoadPotentialDecodeBlocks,
		abi.ColLoadActiveRequests, abi.ColTaintPreference,
	)
	return set
}

// Score makes JSON of the table, calls the plugin and reads its JSON.
func (p *plugin) Score(ctx context.Context, t *policy.Table, scores []float64, _ *policy.StageReport) (policy.Verdict, error) {
	in, err := p.input(t)
	if err != nil {
		return 0, err
	}
	code, out, err := p.p.CallWithContext(ctx, "score", in)
	if err != nil {
		return 0, fmt.Errorf("call plugin: %w", err)
	}
	if code != 0 {
		return 0, fmt.Errorf("call plugin: code %d", code)
	}
	p.answer.Scores = p.answer.Scores[:0]
	if err := json.Unmarshal(out, &p.answer); err != nil {
		return 0, fmt.Errorf("read answer: %w", err)
	}
	if copy(scores, p.answer.Scores) != len(scores) {
		return 0, errors.New("read answer: too few scores")
	}
	return policy.Answered, nil
}

func (p *plugin) input(t *policy.Table) ([]byte, error) {
	p.request.Blocks, p.request.BlockSize = t.Field(abi.FieldISLBlocks), t.Field(abi.FieldBlockSize)
	device, host, disk, shared := t.Column(abi.ColKVOverlapDevice), t.Column(abi.ColKVOverlapHost), t.Column(abi.ColKVOverlapDisk), t.Column(abi.ColKVOverlapShared)
	prefill, potential, decode := t.Column(abi.ColLoadPrefillTokens), t.Column(abi.ColLoadPotentialPrefillTokens), t.Column(abi.ColLoadPotentialDecodeBlocks)
	active, preference := t.Column(abi.ColLoadActiveRequests), t.Column(abi.ColTaintPreference)
	p.request.Candidates = p.request.Candidates[:0]
	for i := range t.Len() {
		p.request.Candidates = append(p.request.Candidates, exchange.Candidate{
			Device: device[i], Host: host[i], Disk: disk[i], Shared: shared[i],
			Prefill: prefill[i], PotentialPrefill: potential[i], PotentialDecode: decode[i],
			Active: active[i], Preference: preference[i],
		})
	}
	in, err := json.Marshal(&p.request)
	if err != nil {
		return nil, fmt.Errorf("write request: %w", err)
	}
	return in, nil
}

// CheckOverrides knows none.
func (p *plugin) CheckOverrides(map[string]json.RawMessage) ([]string, error) { return nil, nil }

// Close ends the plugin.
func (p *plugin) Close() error { return p.p.Close(context.Background()) }
