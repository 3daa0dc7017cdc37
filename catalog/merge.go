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
	told := slices.DeleteFunc(slices.Clone(tellable), func(f field) bool {
		return f.said(&want) || want.Asked != "" && f.name != "block_size"
	})
	all := want
	for _, f := range told {
		f.set(&all, facts)
	}
	if _, err := all.Filled(); err == nil {
		return all, nil
	}
	r = want
	for _, f := range told {
		next := r
		f.set(&next, facts)
		switch _, err := next.Filled(); {
		case err == nil:
			r = next
		case !next.Equal(r):
			unfit = append(unfit, f.name)
		}
	}
	return r, unfit
}

// field is one that an engine may fill in.
type field struct {
	name string
	said func(r *fleet.Record) bool // whether the record says it itself
	set  func(r *fleet.Record, facts *Facts)
	drop func(facts *Facts)
}

// tellable are the fields that an engine may fill in, in an order in which each finds
// set what it depends on.
var tellable = []field{
	number("block_size", func(r *fleet.Record) *int { return &r.BlockSize }, func(f *Facts) *int { return &f.BlockSize }),
	{
		"model",
		func(r *fleet.Record) bool { return r.Model != "" },
		func(r *fleet.Record, facts *Facts) {
			if len(facts.Models) > 0 {
				r.Model = facts.Models[0]
			}
		},
		func(facts *Facts) { facts.Models = nil },
	},
	{
		"engine",
		func(r *fleet.Record) bool { return r.Engine != "" },
		func(r *fleet.Record, facts *Facts) { r.Engine = facts.Engine },
		func(facts *Facts) { facts.Engine = "" },
	},
	number("dp_size", func(r *fleet.Record) *int { return &r.DPSize }, func(f *Facts) *int { return &f.DPSize }),
	number("total_kv_blocks", func(r *fleet.Record) *int { return &r.TotalKVBlocks }, func(f *Facts) *int { return &f.TotalKVBlocks }),
	number("max_batched_tokens", func(r *fleet.Record) *int { return &r.MaxBatchedTokens }, func(f *Facts) *int { return &f.MaxBatchedTokens }),
	{
		"kv_events",
		func(r *fleet.Record) bool { return len(r.KVEvents) > 0 },
		func(r *fleet.Record, facts *Facts) { r.KVEvents = ofRanks(facts.KVEvents, *r) },
		func(facts *Facts) { facts.KVEvents = nil },
	},
	{
		"replay",
		func(r *fleet.Record) bool { return len(r.Replay) > 0 || len(r.KVEvents) > 0 }, // it belongs to its publisher
		func(r *fleet.Record, facts *Facts) {
			if len(r.KVEvents) > 0 {
				r.Replay = ofRanks(facts.Replay, *r)
			}
		},
		func(facts *Facts) { facts.Replay = nil },
	},
	{
		"adapters",
		func(r *fleet.Record) bool { return len(r.Adapters) > 0 },
		func(r *fleet.Record, facts *Facts) { r.Adapters = adaptersOf(*r, facts.Adapters) },
		func(facts *Facts) { facts.Adapters = nil },
	},
}

// number is a field of which zero says nothing.
func number(name string, of func(*fleet.Record) *int, told func(*Facts) *int) field {
	return field{
		name,
		func(r *fleet.Record) bool { return *of(r) != 0 },
		func(r *fleet.Record, facts *Facts) { *of(r) = *told(facts) },
		func(facts *Facts) { *told(facts) = 0 },
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
		f.Models, f.Adapters, f.More = was.Models, was.Adapters, was.More
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
	_, unfit := merge(fleet.Record{ID: 1, Name: "probe", URL: "http://h:1"}, &facts)
	for _, f := range tellable {
		if slices.Contains(unfit, f.name) {
			f.drop(&facts)
			facts.Untold = append(facts.Untold, f.name+": what the engine says is out of range")
		}
	}
	return &facts
}

// untoldOf is what an engine does not tell but for what the record says itself.
func untoldOf(want *fleet.Record, untold []string) []string {
	return slices.DeleteFunc(slices.Clone(untold), func(text string) bool {
		name, _, _ := strings.Cut(text, ":")
		return slices.ContainsFunc(tellable, func(f field) bool { return f.name == name && f.said(want) })
	})
}
