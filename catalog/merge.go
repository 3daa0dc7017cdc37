package catalog

import (
	"maps"
	"slices"

	"github.com/routerd/routerd/fleet"
)

// merged is a record with what its engine tells in the fields that it leaves unset. Of
// a record with bodies of its own (fleet.Record.Asked) only the block size counts: its
// surface has filled the rest.
func merged(want fleet.Record, facts *Facts) fleet.Record {
	r := want
	if facts == nil {
		return r
	}
	if r.BlockSize == 0 {
		r.BlockSize = facts.BlockSize
	}
	if r.Asked != "" {
		return r
	}
	if r.Model == "" && len(facts.Models) > 0 {
		r.Model = facts.Models[0]
	}
	if r.Engine == "" {
		r.Engine = facts.Engine
	}
	if r.DPSize == 0 {
		r.DPSize = facts.DPSize
	}
	if r.TotalKVBlocks == 0 {
		r.TotalKVBlocks = facts.TotalKVBlocks
	}
	if r.MaxBatchedTokens == 0 {
		r.MaxBatchedTokens = facts.MaxBatchedTokens
	}
	if len(r.KVEvents) == 0 { // a replay socket belongs to its publisher
		r.KVEvents, r.Replay = ofRanks(facts.KVEvents, r), ofRanks(facts.Replay, r)
		if len(want.Replay) > 0 {
			r.Replay = want.Replay
		}
	}
	if len(r.Adapters) == 0 {
		r.Adapters = slices.Clone(facts.Adapters)
	}
	return r
}

// ofRanks are the endpoints of the ranks that the record may have.
func ofRanks(endpoints map[int]string, r fleet.Record) map[int]string {
	out := maps.Clone(endpoints)
	maps.DeleteFunc(out, func(rank int, _ string) bool {
		return rank < r.DPStart || rank >= r.DPStart+max(r.DPSize, 1)
	})
	return out
}

// usable leaves out of the facts what no record may hold, so that an engine that
// answers nonsense costs its worker that field alone.
func usable(facts Facts) *Facts {
	probe := func(set func(*fleet.Record)) bool {
		r := fleet.Record{ID: 1, Name: "probe", URL: "http://h:1"}
		set(&r)
		_, err := r.Filled()
		return err == nil
	}
	clearUnless := func(ok bool, field string, drop func()) {
		if !ok {
			drop()
			facts.Untold = append(facts.Untold, field+": what the engine says is out of range")
		}
	}
	clearUnless(probe(func(r *fleet.Record) { r.Engine = facts.Engine }), "engine", func() { facts.Engine = "" })
	clearUnless(len(facts.Models) == 0 || probe(func(r *fleet.Record) { r.Model = facts.Models[0] }), "model", func() { facts.Models = nil })
	clearUnless(probe(func(r *fleet.Record) { r.BlockSize = facts.BlockSize }), "block_size", func() { facts.BlockSize = 0 })
	clearUnless(probe(func(r *fleet.Record) { r.DPSize = facts.DPSize }), "dp_size", func() { facts.DPSize = 0 })
	clearUnless(probe(func(r *fleet.Record) { r.TotalKVBlocks = facts.TotalKVBlocks }), "total_kv_blocks", func() { facts.TotalKVBlocks = 0 })
	clearUnless(probe(func(r *fleet.Record) { r.MaxBatchedTokens = facts.MaxBatchedTokens }), "max_batched_tokens", func() { facts.MaxBatchedTokens = 0 })
	clearUnless(probe(func(r *fleet.Record) { r.KVEvents = facts.KVEvents }), "kv_events", func() { facts.KVEvents = nil })
	clearUnless(probe(func(r *fleet.Record) { r.Replay = facts.Replay }), "replay", func() { facts.Replay = nil })
	clearUnless(probe(func(r *fleet.Record) { r.Adapters = facts.Adapters }), "adapters", func() { facts.Adapters = nil })
	return &facts
}
