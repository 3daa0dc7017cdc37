package core_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/fleet"
)

// ruled is a policy source whose rules a test changes: a map from "model" or
// "model/class" to a policy's name.
type ruled struct {
	mu      sync.Mutex
	rules   map[string]string
	handles map[string]*policy.Handle
	asked   func(rule string) error // called outside the lock; nil for none
}

var errRules = errors.New("the rules cannot be read")

func newRuled(t *testing.T, names ...string) *ruled {
	s := &ruled{rules: map[string]string{}, handles: map[string]*policy.Handle{}}
	for _, name := range names {
		s.handles[name] = handleOf(t, revisionOf(t, name, 1, use("builtin:kv-aware"), nil))
	}
	return s
}

func (s *ruled) set(rules map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rules = rules
}

func (s *ruled) Resolve(key fleet.PartitionKey, class string) (*policy.Handle, error) {
	rule := key.Model
	if class != "" {
		rule += "/" + class
	}
	s.mu.Lock()
	name := s.rules[rule]
	if name == "" {
		name = s.rules[key.Model]
	}
	s.mu.Unlock()
	if s.asked != nil {
		if err := s.asked(rule); err != nil {
			return nil, err
		}
	}
	if s.handles[name] == nil {
		return nil, errRules
	}
	return s.handles[name], nil
}

func ruledWorld(t *testing.T, s *ruled) *world {
	w := newWorld(t, use("builtin:kv-aware"), nil)
	w.SelectionCore = core.New(core.DefaultConfig(), core.SelectionHost{Telemetry: w.heard}, s, w.cache, nil)
	return w
}

// deciders are the policies that decide for each rule.
func (w *world) deciders(t *testing.T, rules ...string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, rule := range rules {
		key, class := rule, ""
		for i := range rule {
			if rule[i] == '/' {
				key, class = rule[:i], rule[i+1:]
			}
		}
		sel, err := w.Select(t.Context(), &core.Request{Partition: model(key), Class: class})
		if err != nil {
			t.Fatal(err)
		}
		out[rule] = sel.Policy
	}
	return out
}

func TestRulesThatChangedAreResolvedAgain(t *testing.T) {
	s := newRuled(t, "a", "b", "c")
	s.set(map[string]string{"m1": "a", "m1/gold": "b", "m2": "a", "m3": "a"})
	w := ruledWorld(t, s)
	w.join(t, record("w1", "m1"), record("w2", "m2"))
	if err := w.Prepare(t.Context(), model("m3"), 16); err != nil { // prepared only
		t.Fatal(err)
	}
	all := []string{"m1", "m1/gold", "m1/iron", "m2"}
	before := map[string]string{"m1": "a", "m1/gold": "b", "m1/iron": "a", "m2": "a"}
	if diff := cmp.Diff(before, w.deciders(t, all...)); diff != "" {
		t.Fatalf("before (-want +got):\n%s", diff)
	}
	s.set(map[string]string{"m1": "c", "m1/gold": "a", "m2": "b", "m3": "b"})
	if diff := cmp.Diff(before, w.deciders(t, all...)); diff != "" {
		t.Errorf("before they are resolved (-want +got):\n%s", diff)
	}
	if err := w.ResolvePolicies(); err != nil {
		t.Fatal(err)
	}
	w.join(t, record("w3", "m3"))
	want := map[string]string{"m1": "c", "m1/gold": "a", "m1/iron": "c", "m2": "b", "m3": "b"}
	if diff := cmp.Diff(want, w.deciders(t, append(all, "m3")...)); diff != "" {
		t.Errorf("after (-want +got):\n%s", diff)
	}
	if got := w.Partitions()[0].Policy.Name; got != "c" {
		t.Errorf("the partition shows policy %s; want c", got)
	}
}

func TestRulesThatCannotBeResolvedChangeNothing(t *testing.T) {
	for _, broken := range []map[string]string{
		{"m1": "c", "m2": "no such policy"},
		{"m1": "no such policy", "m2": "c"},
		{"m1": "c", "m2": "c", "m1/gold": "no such policy"},
	} {
		s := newRuled(t, "a", "b", "c")
		s.set(map[string]string{"m1": "a", "m1/gold": "b", "m2": "a"})
		w := ruledWorld(t, s)
		w.join(t, record("w1", "m1"), record("w2", "m2"))
		all := []string{"m1", "m1/gold", "m2"}
		before := w.deciders(t, all...)
		s.set(broken)
		if err := w.ResolvePolicies(); !errors.Is(err, errRules) {
			t.Fatalf("%v: got %v; want %v", broken, err, errRules)
		}
		if diff := cmp.Diff(before, w.deciders(t, all...)); diff != "" {
			t.Errorf("%v (-want +got):\n%s", broken, diff)
		}
	}
}

func TestARequestUnderWayKeepsThePolicyItBeganWith(t *testing.T) {
	s := newRuled(t, "a", "b")
	var w *world
	changed := false
	st := &stage{score: func(context.Context, *policy.Table, []float64) error {
		if changed {
			return nil
		}
		changed = true
		s.set(map[string]string{"m1": "b"})
		id := fleet.IDFromName("w1") // and the decision is void
		return errors.Join(w.ResolvePolicies(), w.SetLifecycle(id, core.Draining, nil), w.SetLifecycle(id, core.Ready, nil))
	}}
	s.handles["a"] = handleOf(t, revisionOf(t, "a", 1, use("module:m"), stages{st}))
	s.set(map[string]string{"m1": "a"})
	w = ruledWorld(t, s)
	w.join(t, record("w1", "m1"))
	for i, want := range []string{"a", "b"} {
		sel, err := w.Select(t.Context(), bookRequest(fmt.Sprint(i), nil))
		if err != nil || sel.Policy != want {
			t.Errorf("request %d: got %+v, %v; want policy %s", i, sel, err, want)
		}
	}
	if w.heard.decided[0].Conflicts != 1 {
		t.Errorf("%d conflicts; want 1", w.heard.decided[0].Conflicts)
	}
}

func TestAPartitionThatIsPreparedMeanwhileGetsTheNewRules(t *testing.T) {
	s := newRuled(t, "a", "b")
	s.set(map[string]string{"m1": "a"})
	w := ruledWorld(t, s)
	first := true
	s.asked = func(string) error {
		if !first {
			return nil
		}
		first = false // the source has read the old rule, and then they change
		s.set(map[string]string{"m1": "b"})
		return w.ResolvePolicies()
	}
	w.join(t, record("w1", "m1"))
	if diff := cmp.Diff(map[string]string{"m1": "b"}, w.deciders(t, "m1")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestResolvingRacesWithSelections(t *testing.T) {
	s := newRuled(t, "a", "b")
	s.set(map[string]string{"m1": "a"})
	w := ruledWorld(t, s)
	w.join(t, record("w1", "m1"), record("w2", "m1"))
	done := make(chan struct{})
	var wg sync.WaitGroup
	for c := range 4 {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-done:
					return
				default:
				}
				class := ""
				if c%2 == 1 {
					class = fmt.Sprint("c", i%8)
				}
				if _, err := w.Select(t.Context(), &core.Request{Partition: model("m1"), Class: class}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for i := range 200 {
		s.set(map[string]string{"m1": []string{"a", "b"}[i%2]})
		if err := w.ResolvePolicies(); err != nil {
			t.Error(err)
		}
		want := []string{"a", "b"}[i%2]
		if got := w.deciders(t, "m1", "m1/c1"); got["m1"] != want || got["m1/c1"] != want {
			t.Fatalf("round %d: got %v; want %s", i, got, want)
		}
	}
	close(done)
	wg.Wait()
}
