package core_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/core/queue"
	"github.com/routerd/routerd/core/reserve"
	"github.com/routerd/routerd/fleet"
)

// scenarios are those of testdata/scenarios.list that a story cannot tell: they
// need many requests at once.
func scenarios() map[string]func(*testing.T) {
	return map[string]func(*testing.T){
		"catalog_updates_commit_in_order_without_exposing_candidates": TestReaderNeverSeesAHalfAppliedChange,
		"concurrent flood keeps load equal to admitted sum":           floodKeepsLoadEqualToTheAdmittedSum,
		"weighted round robin shares hold over 1,000 pops":            sharesHoldOverAThousandPops,
	}
}

func TestScenarios(t *testing.T) {
	for name, run := range scenarios() {
		t.Run(name, run)
	}
}

// TestEveryScenarioIsPlayed fails when a name of the list has neither a story nor
// a test, and when a story plays one that is not in the list.
func TestEveryScenarioIsPlayed(t *testing.T) {
	list, err := os.ReadFile("testdata/scenarios.list")
	if err != nil {
		t.Fatal(err)
	}
	told, err := headings("testdata/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	for name := range scenarios() {
		told[name] = true
	}
	read := func(path string) ([]byte, error) { return os.ReadFile(filepath.Join("..", path)) }
	if missing := unplayed(list, told, read); len(missing) > 0 {
		t.Errorf("nobody plays:\n%s", strings.Join(missing, "\n"))
	}
	for name := range told {
		if !bytes.Contains(list, []byte("\n"+name+"\n")) {
			t.Errorf("%q is played and not in the list", name)
		}
	}
}

func TestAScenarioThatNobodyPlaysIsFound(t *testing.T) {
	read := func(string) ([]byte, error) { return []byte("func TestIt(t *testing.T) {"), nil }
	list := []byte("# Queue\ntold\nnot told\nelsewhere @ a_test.go TestIt\nnowhere @ a_test.go TestI\n")
	got := unplayed(list, map[string]bool{"told": true}, read)
	if diff := cmp.Diff([]string{"not told", "nowhere"}, got); diff != "" {
		t.Errorf("unplayed (-want +got):\n%s", diff)
	}
}

// headings are the scenarios that stories tell.
func headings(pattern string) (map[string]bool, error) {
	paths, err := filepath.Glob(pattern)
	if err != nil {
		return nil, err
	}
	told := map[string]bool{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(string(text)) {
			if name, ok := strings.CutPrefix(line, "# scenario: "); ok {
				told[strings.TrimSpace(name)] = true
			}
		}
	}
	return told, nil
}

// unplayed are the names of the list that nobody plays.
func unplayed(list []byte, told map[string]bool, read func(path string) ([]byte, error)) (missing []string) {
	for line := range strings.Lines(string(list)) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		name, at, elsewhere := strings.Cut(line, " @ ")
		if !elsewhere {
			if !told[name] {
				missing = append(missing, name)
			}
			continue
		}
		path, test, _ := strings.Cut(at, " ")
		if text, err := read(path); err != nil || !bytes.Contains(text, []byte("func "+test+"(")) {
			missing = append(missing, name)
		}
	}
	return missing
}

// Three classes of weights 1, 2 and 5 that always have a backlog share 1,000
// dispatches by them, in prompt tokens: one of them has prompts of twice the
// length and half as many dispatches.
func sharesHoldOverAThousandPops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		weights, lengths := map[string]int{"a": 1, "b": 2, "c": 5}, map[string]int{"a": 100, "b": 100, "c": 200}
		w := newWorld(t, use("builtin:least-load"), nil, oneEach(1), func(c *core.Config) {
			for _, name := range []string{"a", "b", "c"} {
				cl := c.Queue.Classes[0]
				cl.Name, cl.Weight, cl.Limits = name, weights[name], queue.Limits{Requests: 50, Tokens: -1, CachedTokens: -1}
				c.Queue.Classes = append(c.Queue.Classes, cl)
			}
		})
		w.join(t, record("w1", "m1"))
		ctx, cancel := context.WithCancel(t.Context())
		current, err := w.Select(t.Context(), bookRequest("blocks", nil))
		if err != nil {
			t.Fatal(err)
		}
		var all []chan outcome
		arrive := func(class string, n int) {
			req := bookRequest(fmt.Sprint(class, ":", n), nil)
			req.Class, req.Prompt.Count = class, lengths[class]
			all = append(all, w.selectAll(ctx, req)...)
		}
		for i := range 10 {
			for class := range weights {
				arrive(class, i)
			}
		}
		tokens, sum := map[string]int{}, 0
		for i := range 1000 {
			synctest.Wait()
			current.Reservation.Release(reserve.Outcome{Kind: reserve.Completed})
			synctest.Wait()
			at := slices.IndexFunc(all, func(ch chan outcome) bool { return len(ch) > 0 })
			o := <-all[at]
			if o.err != nil {
				t.Fatal(o.err)
			}
			all, current = slices.Delete(all, at, at+1), o.sel
			class, _, _ := strings.Cut(o.sel.ID, ":")
			tokens[class] += lengths[class]
			sum += lengths[class]
			arrive(class, 10+i)
		}
		for class, weight := range weights {
			want := float64(weight) / 8
			if got := float64(tokens[class]) / float64(sum); got < 0.95*want || got > 1.05*want {
				t.Errorf("class %s got %.3f of the tokens; want %.3f", class, got, want)
			}
		}
		cancel()
		current.Reservation.Release(reserve.Outcome{Kind: reserve.Completed})
		synctest.Wait()
		for _, o := range ended(all) {
			if o.sel != nil {
				o.sel.Reservation.Release(reserve.Outcome{Kind: reserve.Completed})
			}
		}
		if msg := w.leftOver(); msg != "" {
			t.Error(msg)
		}
	})
}

// Whatever a lora stage does wrong, only workers with the adapter are candidates,
// and the request is served.
func TestL5_HostNarrowingHoldsWhateverTheScorerDoes(t *testing.T) {
	src := oddities(&gate{})
	src["module:lacks"] = &stage{score: func(_ context.Context, tb *policy.Table, scores []float64) error {
		for i, r := range tb.Rows {
			scores[i] = map[bool]float64{true: 1e9}[r.ID == fleet.IDFromName("w3")] // it lacks the adapter
		}
		return nil
	}}
	src["module:fuel"] = &stage{score: func(context.Context, *policy.Table, []float64) error {
		return &policy.Fault{Stage: "module:fuel", Code: "E_FUEL", Reason: "fuel", Counts: true}
	}}
	for name, reason := range map[string]string{"module:trap": "trap", "module:nan": "nan", "module:fuel": "fuel", "module:lacks": ""} {
		t.Run(name, func(t *testing.T) {
			spec := use("builtin:kv-aware")
			spec.Lora = []policy.ScorerSpec{{StageSpec: policy.StageSpec{Use: name}}}
			w := newWorld(t, spec, src)
			var off atomic.Bool // the guard: with it on, a trip would hide what comes after
			off.Store(true)
			p, digests, err := policy.Compile(t.Context(), spec, src)
			if err != nil {
				t.Fatal(err)
			}
			w.policies.handle = handleOf(t, policy.NewRevision("default", 1, spec, p, digests, policy.GuardSwitch(&off)))
			recs := workers("m1", 3)
			for i := range 2 {
				recs[i].Adapters = []fleet.Adapter{{Name: "sql"}}
			}
			w.join(t, recs...)
			for range 20 {
				req := bookRequest("", prompt('A', 64))
				req.Adapter = "sql"
				sel, err := w.Select(t.Context(), req)
				if err != nil || sel.Name == "w3" {
					t.Fatalf("got %v, %v; want w1 or w2", sel, err)
				}
			}
			for _, e := range w.heard.decided {
				if e.FaultReason != reason || e.Candidates != 2 {
					t.Fatalf("telemetry heard of fault %q among %d candidates; want %q among 2, each time", e.FaultReason, e.Candidates, reason)
				}
			}
		})
	}
}

// What stories end with bites: each thing that can be left over is found.
func TestWhatIsLeftOverIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, use("builtin:kv-aware"), nil, oneEach(1))
		w.join(t, record("w1", "m1"))
		found := func(want string) {
			t.Helper()
			if got := w.leftOver(); !strings.Contains(got, want) || (want == "") != (got == "") {
				t.Errorf("found %q; want %q in it", got, want)
			}
		}
		found("")
		sel, err := w.Select(t.Context(), sessionRequest("a", "s"))
		if err != nil {
			t.Fatal(err)
		}
		found("ActiveRequests:1")
		other, err := w.Reserve(t.Context(), &core.Booking{SelectionID: "b", Partition: model("m1"), Worker: &sel.Worker.ID})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		waiting := w.selectAll(ctx, sessionRequest("c", "s"))
		synctest.Wait()
		sel.Reservation.Release(reserve.Outcome{Kind: reserve.Completed})
		found("ActiveRequests:1")
		w.remove(t, "w1") // its booking goes, and c waits for nobody
		synctest.Wait()
		if o := ended(waiting); len(o) != 1 || !other.Reservation.Released() {
			t.Errorf("%d ended; want that of the worker that has left", len(o))
		}
		cancel()
		found("")

		g := &gate{}
		w = newWorld(t, policy.Spec{Filters: []policy.FilterSpec{{StageSpec: policy.StageSpec{Use: "module:gate"}}}, Scorers: use("builtin:kv-aware").Scorers}, oddities(g), oneEach(1))
		w.join(t, record("w1", "m1"))
		g.shut()
		deciding := w.selectAll(t.Context(), sessionRequest("a", "s"), sessionRequest("b", "s"))
		synctest.Wait()
		found("Requests:1")
		found("Initialising:1")
		g.lift()
		synctest.Wait()
		o := ended(deciding)
		o[0].sel.Reservation.Release(reserve.Outcome{Kind: reserve.Completed})
		synctest.Wait()
		ended(deciding)[0].sel.Reservation.Release(reserve.Outcome{Kind: reserve.Completed})
		found("")
	})
}
