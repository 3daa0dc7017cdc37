package lora_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/core/lora"
	"github.com/routerd/routerd/fleet"
)

// worker describes a candidate in a test: on "w1" a registered one needs the
// adapter, on a lazy one it is loaded when asked.
func registered(id fleet.WorkerID, s lora.State) lora.Candidate {
	return lora.Candidate{Worker: id, State: s, RegistrationRequired: true}
}

func lazy(id fleet.WorkerID, s lora.State) lora.Candidate {
	return lora.Candidate{Worker: id, State: s}
}

func active(ids ...fleet.WorkerID) *lora.Allocation {
	return lora.NewAllocation(lora.Set{Adapter: "sql", Workers: ids, Active: true})
}

func inactive(ids ...fleet.WorkerID) *lora.Allocation {
	return lora.NewAllocation(lora.Set{Adapter: "sql", Workers: ids})
}

// kept narrows and lists who is left.
func kept(a *lora.Allocation, universe ...lora.Candidate) []fleet.WorkerID {
	keep := make([]bool, len(universe))
	for i := range keep {
		keep[i] = true // Narrow writes every element
	}
	lora.Narrow(a, "sql", universe, keep)
	ids := []fleet.WorkerID{}
	for i, c := range universe {
		if keep[i] {
			ids = append(ids, c.Worker)
		}
	}
	return ids
}

func ids(list ...fleet.WorkerID) []fleet.WorkerID { return append([]fleet.WorkerID{}, list...) }

func TestNarrowRowByRow(t *testing.T) {
	const absent, loading, loaded = lora.Absent, lora.Loading, lora.Loaded
	first := lora.Rendezvous("sql", ids(1, 2, 3))
	cases := []struct {
		name     string
		table    *lora.Allocation
		universe []lora.Candidate
		want     []fleet.WorkerID
	}{
		{"unknown adapter: those that have it", nil, []lora.Candidate{lazy(1, absent), lazy(2, loaded), lazy(3, loaded)}, ids(2, 3)},
		{"unknown adapter, nobody has it: all", nil, []lora.Candidate{lazy(1, absent), lazy(2, loading), lazy(3, absent)}, ids(1, 2, 3)},
		{"an adapter beside those that are listed is unknown", lora.NewAllocation(lora.Set{Adapter: "other", Workers: ids(1), Active: true}), []lora.Candidate{lazy(1, absent), lazy(2, loaded)}, ids(2)},
		{"active: those of the set that have it", active(1, 2), []lora.Candidate{lazy(1, loading), lazy(2, loaded), lazy(3, loaded)}, ids(2)},
		{"active, nobody of the set has it: the set, which loads it", active(1, 2), []lora.Candidate{lazy(1, absent), lazy(2, loading), lazy(3, loaded)}, ids(1, 2)},
		{"active, the set outside the universe: those that have it", active(9), []lora.Candidate{lazy(1, absent), lazy(2, loaded), lazy(3, loaded)}, ids(2, 3)},
		{"active, the set outside and nobody has it: the first by rendezvous", active(9), []lora.Candidate{lazy(1, absent), lazy(2, absent), lazy(3, loading)}, first[:1]},
		{"active with an empty set: the first by rendezvous", active(), []lora.Candidate{lazy(1, absent), lazy(2, absent), lazy(3, absent)}, first[:1]},
		{"not active: the first of the set", inactive(1, 2, 3), []lora.Candidate{lazy(1, loaded), lazy(2, loaded), lazy(3, loaded)}, first[:1]},
		{"not active, the first outside the universe: those that have it", inactive(9), []lora.Candidate{lazy(1, absent), lazy(2, loaded), lazy(3, loaded)}, ids(2, 3)},
		{"not active, nobody has it: the first by rendezvous", inactive(9), []lora.Candidate{lazy(1, absent), lazy(2, absent), lazy(3, absent)}, first[:1]},
		{"who needs the adapter counts only with it", active(1, 2), []lora.Candidate{registered(1, absent), registered(2, loaded)}, ids(2)},
		{"of the set only those that count", active(1, 2), []lora.Candidate{registered(1, loading), lazy(2, absent), registered(3, loaded)}, ids(2)},
		{"the set does not count: those that have it", active(1), []lora.Candidate{registered(1, loading), registered(2, loaded), registered(3, absent)}, ids(2)},
		{"the first of an idle set does not count: those that have it", inactive(1), []lora.Candidate{registered(1, loading), registered(2, loaded)}, ids(2)},
		{"rendezvous passes over who does not count", active(9), []lora.Candidate{registered(1, absent), registered(2, loading), lazy(3, absent)}, ids(3)},
		{"nobody counts: nobody", active(1), []lora.Candidate{registered(1, absent), registered(2, loading)}, ids()},
		{"nobody there: nobody", active(1), nil, ids()},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, kept(c.table, c.universe...)); diff != "" {
				t.Errorf("kept (-want +got):\n%s", diff)
			}
		})
	}
}

func TestL2_TheAllowSetIsNeverLeft(t *testing.T) {
	// The adapter is on w1 only and the request allows w2 and w3: the universe is
	// those two, whatever the allocation says.
	for name, table := range map[string]*lora.Allocation{"unknown": nil, "active": active(1), "not active": inactive(1)} {
		if got := kept(table, registered(2, lora.Absent), registered(3, lora.Absent)); len(got) != 0 {
			t.Errorf("%s: %v, want nobody where both refuse it", name, got)
		}
		if got := kept(table, lazy(2, lora.Absent), lazy(3, lora.Absent)); len(got) == 0 {
			t.Errorf("%s: nobody, want some of w2 and w3, which load it", name)
		}
	}
	if registered(2, lora.Absent).Counts() || registered(2, lora.Loading).Counts() {
		t.Error("a pinned worker that refuses the adapter counts")
	}
}

func TestL3_AWorkerThatStillLoadsGetsNothing(t *testing.T) {
	for name, table := range map[string]*lora.Allocation{"unknown": nil, "active": active(1, 2), "not active": inactive(1), "elsewhere": active(1)} {
		if diff := cmp.Diff(ids(2), kept(table, registered(1, lora.Loading), registered(2, lora.Loaded))); diff != "" {
			t.Errorf("%s: w1 loading (-want +got):\n%s", name, diff)
		}
	}
	for name, table := range map[string]*lora.Allocation{"unknown": nil, "active": active(1, 2)} {
		if diff := cmp.Diff(ids(1, 2), kept(table, registered(1, lora.Loaded), registered(2, lora.Loaded))); diff != "" {
			t.Errorf("%s: both loaded (-want +got):\n%s", name, diff)
		}
	}
}

func TestNarrowAllocatesNothing(t *testing.T) {
	universe, keep := make([]lora.Candidate, 512), make([]bool, 512)
	var set []fleet.WorkerID
	for i := range universe {
		universe[i] = lazy(fleet.WorkerID(i+1), lora.Absent)
		set = append(set, fleet.WorkerID(10_000+i))
	}
	table := active(set...)
	if n := testing.AllocsPerRun(20, func() { lora.Narrow(table, "sql", universe, keep) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestAnAllocationTellsItsSets(t *testing.T) {
	table := lora.NewAllocation(lora.Set{Adapter: "sql", Workers: ids(3, 1, 2), Active: true}, lora.Set{Adapter: "none"})
	set, isActive, known := table.Of("sql")
	if diff := cmp.Diff(lora.Rendezvous("sql", ids(1, 2, 3)), set); diff != "" || !isActive || !known {
		t.Errorf("active %v, known %v, set (-want +got):\n%s", isActive, known, diff)
	}
	if set, isActive, known := table.Of("none"); len(set) != 0 || isActive || !known {
		t.Errorf("an empty set: %v %v %v", set, isActive, known)
	}
	if _, _, known := table.Of("ghost"); known || table.Holds("ghost", 1) || !table.Holds("sql", 1) || table.Holds("sql", 4) {
		t.Error("the table holds what it does not list, or not what it lists")
	}
	var nothing *lora.Allocation
	if _, _, known := nothing.Of("sql"); known || nothing.Holds("sql", 1) {
		t.Error("nil lists an adapter")
	}
}

func BenchmarkNarrow(b *testing.B) {
	universe, keep := make([]lora.Candidate, 512), make([]bool, 512)
	for i := range universe {
		universe[i] = registered(fleet.WorkerID(i+1), lora.State(i%3))
	}
	table := active(3, 6, 9, 12)
	b.ReportAllocs()
	for b.Loop() {
		lora.Narrow(table, "sql", universe, keep)
	}
}
