package catalog

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/routerd/routerd/fleet"
)

// merged is a record with what its engine tells in the fields that it leaves unset. Of
// a record with bodies of its own (fleet.Record.Asked) only the block size counts: its
// surface has filled the rest.
func merged(want fleet.Record, facts *Facts) fleet.Record {
	r, _ := merge(want, facts)
	return r
}

// merge is merged that also names the fields in which what the engine tells contradicts
// the record, so that it counts as not told.
func merge(want fleet.Record, facts *Facts) (r fleet.Record, unfit []string) {
	if facts == nil {
		return want, nil
	}
	all := want
	for _, f := range tellable {
		f.set(&all, want, facts)
	}
	if _, err := all.Filled(); err == nil {
		return all, nil
	}
	r = want
	for _, f := range tellable {
		next := r
		f.set(&next, want, facts)
		switch _, err := next.Filled(); {
		case err == nil:
			r = next
		case !next.Equal(r):
			unfit = append(unfit, f.name)
		}
	}
	return r, unfit
}

// tellable are the fields that an engine may fill in, in an order in which each finds
// set what it depends on.
var tellable = []struct {
	name string
	set  func(r *fleet.Record, want fleet.Record, facts *Facts)
}{
	{"block_size", func(r *fleet.Record, _ fleet.Record, facts *Facts) {
		r.BlockSize = cmp.Or(r.BlockSize, facts.BlockSize)
	}},
	{"model", func(r *fleet.Record, _ fleet.Record, facts *Facts) {
		if r.Model == "" && r.Asked == "" && len(facts.Models) > 0 {
			r.Model = facts.Models[0]
		}
	}},
	{"engine", unlessAsked(func(r *fleet.Record, _ fleet.Record, facts *Facts) { r.Engine = cmp.Or(r.Engine, facts.Engine) })},
	{"dp_size", unlessAsked(func(r *fleet.Record, _ fleet.Record, facts *Facts) { r.DPSize = cmp.Or(r.DPSize, facts.DPSize) })},
	{"total_kv_blocks", unlessAsked(func(r *fleet.Record, _ fleet.Record, facts *Facts) {
		r.TotalKVBlocks = cmp.Or(r.TotalKVBlocks, facts.TotalKVBlocks)
	})},
	{"max_batched_tokens", unlessAsked(func(r *fleet.Record, _ fleet.Record, facts *Facts) {
		r.MaxBatchedTokens = cmp.Or(r.MaxBatchedTokens, facts.MaxBatchedTokens)
	})},
	{"kv_events", unlessAsked(func(r *fleet.Record, want fleet.Record, facts *Facts) {
		if len(r.KVEvents) > 0 {
			return // a replay socket belongs to its publisher
		}
		r.KVEvents = ofRanks(facts.KVEvents, *r)
		if len(want.Replay) == 0 {
			r.Replay = ofRanks(facts.Replay, *r)
		}
	})},
	{"adapters", unlessAsked(func(r *fleet.Record, _ fleet.Record, facts *Facts) {
		if len(r.Adapters) == 0 {
			r.Adapters = adaptersOf(*r, facts.Adapters)
		}
	})},
}

func unlessAsked(set func(*fleet.Record, fleet.Record, *Facts)) func(*fleet.Record, fleet.Record, *Facts) {
	return func(r *fleet.Record, want fleet.Record, facts *Facts) {
		if r.Asked == "" {
			set(r, want, facts)
		}
	}
}

// adaptersOf are the adapters that the record may have: what has the name of its base
// model is reached by that.
func adaptersOf(r fleet.Record, loaded []fleet.Adapter) []fleet.Adapter {
	return slices.DeleteFunc(slices.Clone(loaded), func(a fleet.Adapter) bool { return a.Name == r.Partition().Model })
}

// withAdapters is the record with what its engine says it has loaded, unless no record
// may hold that.
func withAdapters(r fleet.Record, loaded []fleet.Adapter) fleet.Record {
	next := r
	next.Adapters = adaptersOf(r, loaded)
	if _, err := next.Filled(); err != nil {
		return r
	}
	return next
}

// complete adds to what an engine tells what it told before and does not tell now: a
// place that was slow to answer costs its worker nothing. Another engine, by its kind,
// version or models, begins anew.
func (f *Facts) complete(was *Facts) {
	if was == nil || f.Engine != "" && f.Engine != was.Engine || f.Version != "" && f.Version != was.Version ||
		len(f.Models) > 0 && !slices.Equal(f.Models, was.Models) {
		return
	}
	if len(f.Models) == 0 { // they come from one place
		f.Models, f.Adapters = was.Models, was.Adapters
	}
	f.Engine, f.Version = was.Engine, was.Version
	f.BlockSize, f.DPSize = cmp.Or(f.BlockSize, was.BlockSize), cmp.Or(f.DPSize, was.DPSize)
	f.TotalKVBlocks = cmp.Or(f.TotalKVBlocks, was.TotalKVBlocks)
	f.MaxBatchedTokens = cmp.Or(f.MaxBatchedTokens, was.MaxBatchedTokens)
	if len(f.KVEvents) == 0 {
		f.KVEvents, f.Replay = was.KVEvents, was.Replay
	}
	if len(f.LoadReports) == 0 {
		f.LoadReports = was.LoadReports
	}
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
	if _, unfit := merge(fleet.Record{ID: 1, Name: "probe", URL: "http://h:1"}, &facts); unfit == nil {
		return &facts
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

// untoldOf is what an engine does not tell but for what the record says itself.
func untoldOf(want *fleet.Record, untold []string) []string {
	said := map[string]bool{
		"model": want.Model != "", "engine": want.Engine != "", "block_size": want.BlockSize != 0, "dp_size": want.DPSize != 0,
		"total_kv_blocks": want.TotalKVBlocks != 0, "max_batched_tokens": want.MaxBatchedTokens != 0,
		"kv_events": len(want.KVEvents) > 0, "replay": len(want.Replay) > 0, "adapters": len(want.Adapters) > 0,
	}
	return slices.DeleteFunc(slices.Clone(untold), func(text string) bool {
		field, _, _ := strings.Cut(text, ":")
		return said[field]
	})
}
