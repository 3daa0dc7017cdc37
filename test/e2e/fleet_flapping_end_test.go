//go:build e2e

package e2e_test

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// restore takes all disturbances back and waits until all workers are ready.
func (f *flappingFleet) restore() {
	f.t.Helper()
	f.crashes.Wait()
	var names []string
	for i, e := range f.engines {
		f.order(e, "DELETE", "/sim/faults", nil)
		f.join(e, i%2 == 0)
		names = append(names, e.name())
	}
	eventually(f.t, time.Minute, func() error {
		var got struct {
			Workers []workerView `json:"workers"`
		}
		f.s.must("GET", "/v1/workers", nil, &got)
		return allReady(names, got.Workers)
	})
}

// allReady names each worker that is not there, that is not ready, or that only
// max_ejected keeps in, and its reasons.
func allReady(names []string, workers []workerView) error {
	there := map[string]workerView{}
	for _, w := range workers {
		there[w.Name] = w
	}
	var not []string
	for _, name := range names {
		w, ok := there[name]
		kept := slices.ContainsFunc(w.Reasons, func(reason string) bool { return strings.HasPrefix(reason, "health: ") })
		if !ok {
			not = append(not, name+" is not there")
		} else if w.Lifecycle != "ready" || kept {
			not = append(not, fmt.Sprintf("%s is %s: %q", name, w.Lifecycle, w.Reasons))
		}
	}
	if len(not) > 0 {
		return fmt.Errorf("%d of %d workers are not well: %s", len(not), len(names), strings.Join(not, "; "))
	}
	return nil
}

// sends has a worker serve a prompt that nobody sent before.
func (f *flappingFleet) sends(e *flappingEngine) {
	f.t.Helper()
	f.fresh++
	prompt := strings.Repeat(fmt.Sprintf("fresh%d ", f.fresh), 64)
	eventually(f.t, soon, func() error {
		a, err := f.c.complete(f.t.Context(), prompt, "x-routerd-pin", e.name())
		if err == nil && a.status != http.StatusOK {
			err = fmt.Errorf("%s: %d %s", e.name(), a.status, a.body)
		}
		return err
	})
}

// told waits until the router knows of each engine's cache what the engine says, or does
// not trust what it knows: at once, or where nobody listened yet with the next event.
func (f *flappingFleet) told() {
	f.t.Helper()
	behind, rounds, next := f.engines, 0, time.Time{}
	var aside []string
	eventually(f.t, time.Minute, func() error {
		if !time.Now().Before(next) {
			for _, e := range behind {
				f.sends(e)
			}
			rounds, next = rounds+1, time.Now().Add(time.Second) // replays end meanwhile
		}
		var differ map[string]string
		var err error
		differ, aside, err = sameIndexes(f.caches(), f.s.partition("m").Ranks)
		behind = slices.DeleteFunc(slices.Clone(f.engines), func(e *flappingEngine) bool { return differ[e.name()] == "" })
		return err
	})
	f.t.Logf("all trusted indexes are as the engines say with event %d after the disturbances; put aside, since replay answers were lost: %v", rounds, aside)
}

// engineCache is what an engine says of a rank.
type engineCache struct {
	blocks []string // hashes on the device
	lost   int      // replay answers of this process that it kept back or disturbed
}

// caches are those of all engines' one rank, by their workers' names.
func (f *flappingFleet) caches() map[string]engineCache {
	f.t.Helper()
	all := map[string]engineCache{}
	for _, e := range f.engines {
		all[e.name()] = e.says(f.t)[0]
	}
	return all
}

// says asks an engine, which must be up, for the caches of its ranks.
func (f *flappingEngine) says(t *testing.T) []engineCache {
	t.Helper()
	var held struct {
		Ranks []struct {
			Hashes map[string][]string `json:"hashes"`
		} `json:"ranks"`
	}
	var counts struct {
		Ranks []struct {
			Disturbed int `json:"replays_disturbed"`
		} `json:"ranks"`
	}
	engineJSON(t, f.e, "GET", "/sim/blocks", nil, &held)
	engineJSON(t, f.e, "GET", "/sim/stats", nil, &counts)
	all := make([]engineCache, len(held.Ranks))
	for rank := range all {
		all[rank] = engineCache{held.Ranks[rank].Hashes["device"], counts.Ranks[rank].Disturbed}
	}
	return all
}

// sameIndexes tells of which engines the router's index differs, and which are put aside:
// those that it does not trust itself, where the engine has lost replay answers. Others
// that it does not trust count as different. The error is nil where none differs and no more
// than a quarter is put aside.
func sameIndexes(engines map[string]engineCache, ranks []rankView) (differ map[string]string, aside []string, err error) {
	known := map[string]rankView{}
	for _, v := range ranks {
		known[v.Name] = v
	}
	differ = map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(engines)) {
		e, v := engines[name], known[name]
		got := v.KV.Hashes["device"]
		switch {
		case v.Name == "":
			differ[name] = "the router does not know it"
		case !v.KV.Trusted && e.lost > 0:
			aside = append(aside, name)
		case !v.KV.Trusted:
			differ[name] = fmt.Sprintf("it is not trusted (last %d), though its engine lost no replay answer", v.KV.LastSeq)
		case !slices.Equal(slices.Sorted(slices.Values(e.blocks)), slices.Sorted(slices.Values(got))):
			differ[name] = fmt.Sprintf("%d blocks, want the engine's %d (last %d)", len(got), len(e.blocks), v.KV.LastSeq)
		}
	}
	var what []string
	for _, name := range slices.Sorted(maps.Keys(differ)) {
		what = append(what, name+": "+differ[name])
	}
	switch {
	case len(differ) > 0:
		err = fmt.Errorf("%d of %d indexes differ: %s", len(differ), len(engines), strings.Join(what, "; "))
	case len(aside) > len(engines)/4:
		err = fmt.Errorf("%d of %d indexes are put aside, want a quarter at most: %v", len(aside), len(engines), aside)
	}
	return differ, aside, err
}

func TestAFlappingFleetIsWellOnlyWhenAllAreReady(t *testing.T) {
	names := []string{"w1", "w2"}
	w1 := workerView{Name: "w1", Lifecycle: "ready", Reasons: []string{"kv_events.0: refused"}}
	for _, c := range []struct {
		name    string
		workers []workerView
		want    string // empty for no error
	}{
		{"all are ready", []workerView{w1, {Name: "w2", Lifecycle: "ready"}}, ""},
		{"one is ejected", []workerView{w1, {Name: "w2", Lifecycle: "ejected", Reasons: []string{"health_refused"}}}, `w2 is ejected: ["health_refused"]`},
		{"one is kept", []workerView{w1, {Name: "w2", Lifecycle: "ready", Reasons: []string{"health: outlier (kept: max_ejected)"}}}, "w2 is ready: [\"health: outlier"},
		{"one is not there", []workerView{w1}, "w2 is not there"},
		{"none is there", nil, "2 of 2 workers are not well: w1 is not there; w2 is not there"},
	} {
		t.Run(c.name, func(t *testing.T) { fails(t, allReady(names, c.workers), c.want) })
	}
}

func TestAnIndexIsPutAsideOnlyWhereReplayAnswersWereLost(t *testing.T) {
	rank := func(name string, trusted bool, blocks ...string) (v rankView) {
		v.Name, v.KV.Trusted, v.KV.Hashes = name, trusted, map[string][]string{"device": blocks}
		return v
	}
	same := []rankView{rank("w1", true, "b", "a"), rank("w2", true, "a"), rank("w3", true), rank("w4", true)}
	engines := func(lost ...int) map[string]engineCache {
		lost = append(lost, make([]int, 4)...)
		return map[string]engineCache{"w1": {[]string{"a", "b"}, lost[0]}, "w2": {[]string{"a"}, lost[1]}, "w3": {nil, lost[2]}, "w4": {nil, lost[3]}}
	}
	with := func(at int, v rankView) []rankView {
		out := slices.Clone(same)
		out[at] = v
		return out
	}
	for _, c := range []struct {
		name    string
		engines map[string]engineCache
		ranks   []rankView
		aside   []string
		want    string // empty for no error
	}{
		{"all are the same", engines(), same, nil, ""},
		{"the engine lost answers", engines(1), with(0, rank("w1", false)), []string{"w1"}, ""},
		{"it lost answers and is trusted", engines(1), with(0, rank("w1", true)), nil, "w1: 0 blocks, want the engine's 2"},
		{"not trusted without a loss", engines(0, 1), with(0, rank("w1", false, "a", "b")), nil, "w1: it is not trusted"},
		{"other blocks", engines(), with(1, rank("w2", true, "c")), nil, "w2: 1 blocks, want the engine's 1"},
		{"a rank that the router lacks", engines(1, 1, 1, 1), same[1:], nil, "w1: the router does not know it"},
		{"too many are put aside", engines(1, 1), append(with(0, rank("w1", false))[:1], with(1, rank("w2", false))[1:]...), []string{"w1", "w2"}, "2 of 4 indexes are put aside"},
	} {
		t.Run(c.name, func(t *testing.T) {
			differ, aside, err := sameIndexes(c.engines, c.ranks)
			fails(t, err, c.want)
			if !slices.Equal(aside, c.aside) {
				t.Errorf("put aside: %v, want %v", aside, c.aside)
			}
			for _, name := range aside {
				if differ[name] != "" {
					t.Errorf("%s is put aside and differs: %s", name, differ[name])
				}
			}
		})
	}
}

// fails checks that an error says a text; with an empty one there must be none.
func fails(t *testing.T, err error, want string) {
	t.Helper()
	if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
		t.Errorf("got %v, want an error that says %q", err, want)
	}
}
