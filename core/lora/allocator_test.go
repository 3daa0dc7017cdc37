package lora_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/core/lora"
	"github.com/routerd/routerd/fleet"
)

// farm is a partition whose workers do at once what the allocator says.
type farm struct {
	t       *testing.T
	alloc   *lora.Allocator
	now     time.Time
	workers []lora.Worker
	table   *lora.Allocation
	actions []lora.Action // of the last tick
}

// newFarm makes n workers, ids from 1, that manage the adapters.
func newFarm(t *testing.T, n, slots int, manage ...string) *farm {
	t.Helper()
	f := &farm{t: t, alloc: lora.NewAllocator(lora.DefaultAllocatorConfig()), now: time.Unix(1_000_000, 0)}
	for i := range n {
		f.workers = append(f.workers, lora.Worker{ID: fleet.WorkerID(i + 1), Slots: slots, Manage: manage})
	}
	return f
}

// plan makes one step and leaves its actions undone.
func (f *farm) plan() {
	f.now = f.now.Add(lora.DefaultStep)
	f.table, f.actions = f.alloc.Tick(f.now, f.workers)
}

// tick makes one step and has the workers carry it out.
func (f *farm) tick() {
	f.plan()
	for _, a := range f.actions {
		w := f.worker(a.Worker)
		if a.Load {
			w.Loaded = append(slices.Clone(w.Loaded), a.Adapter)
			continue
		}
		w.Loaded = slices.DeleteFunc(slices.Clone(w.Loaded), func(s string) bool { return s == a.Adapter })
	}
}

func (f *farm) worker(id fleet.WorkerID) *lora.Worker {
	i := slices.IndexFunc(f.workers, func(w lora.Worker) bool { return w.ID == id })
	if i < 0 {
		f.t.Fatalf("an action for worker %d, which is not there", id)
	}
	return &f.workers[i]
}

func (f *farm) arrive(adapter string, n int) {
	for range n {
		f.alloc.Arrived(adapter, f.now)
	}
}

func (f *farm) set(adapter string) []fleet.WorkerID {
	set, _, known := f.table.Of(adapter)
	if !known {
		f.t.Fatalf("%s is not listed", adapter)
	}
	return append([]fleet.WorkerID{}, set...)
}

func (f *farm) sizes(adapters ...string) []int {
	var sizes []int
	for _, a := range adapters {
		sizes = append(sizes, len(f.set(a)))
	}
	return sizes
}

func (f *farm) want(what string, want, got any) {
	f.t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		f.t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func TestAnAdapterWithoutRequestsHasOneReplica(t *testing.T) {
	f := newFarm(t, 3, 2, "a", "b")
	f.tick()
	f.want("set of a", lora.Rendezvous("a", ids(1, 2, 3))[:1], f.set("a"))
	if _, active, _ := f.table.Of("a"); active {
		t.Error("active without a request")
	}
	f.want("actions", 2, len(f.actions))
	f.tick()
	f.want("actions when all is done", 0, len(f.actions))
}

func TestReplicasFollowTheShareOfTheLoad(t *testing.T) {
	f := newFarm(t, 8, 1, "a", "b", "c")
	f.tick()
	f.arrive("a", 60)
	f.arrive("b", 20)
	f.arrive("c", 1)
	f.tick()
	// 8 slots: a wants 60/81, 5 of them; b 20/81, 1; c 1/81, at least 1.
	f.want("replicas", []int{5, 1, 1}, f.sizes("a", "b", "c"))
	if _, active, _ := f.table.Of("c"); !active {
		t.Error("c is not active")
	}
}

func TestNoMoreReplicasThanWorkers(t *testing.T) {
	f := newFarm(t, 2, 4, "a")
	f.tick()
	f.arrive("a", 5)
	f.tick()
	f.want("replicas", []int{2}, f.sizes("a"))
}

func TestPlacementsStayWhenAWorkerJoins(t *testing.T) {
	f := newFarm(t, 3, 4, "a", "b", "c", "d")
	f.tick()
	before := map[string][]fleet.WorkerID{}
	for _, a := range []string{"a", "b", "c", "d"} {
		before[a] = f.set(a)
	}
	for id := range fleet.WorkerID(20) {
		f.workers = append(f.workers, lora.Worker{ID: 100 + id, Slots: 4, Manage: []string{"a", "b", "c", "d"}})
	}
	f.tick()
	for a, want := range before {
		f.want("set of "+a, want, f.set(a))
	}
	f.want("actions", 0, len(f.actions))
}

func TestAPlacementMovesWhenItsWorkerLeaves(t *testing.T) {
	f := newFarm(t, 3, 4, "a")
	f.tick()
	order := lora.Rendezvous("a", ids(1, 2, 3))
	f.workers = slices.DeleteFunc(f.workers, func(w lora.Worker) bool { return w.ID == order[0] })
	f.tick()
	f.want("set", order[1:2], f.set("a"))
}

func TestFullWorkersArePassedOver(t *testing.T) {
	f := newFarm(t, 3, 1, "a", "b", "c")
	f.tick()
	used := map[fleet.WorkerID]bool{}
	for _, a := range []string{"a", "b", "c"} {
		used[f.set(a)[0]] = true
	}
	f.want("workers used", 3, len(used))
	f.want("overflow", 0, f.alloc.Overflow())
}

func TestAnActiveAdapterOverflowsWhereAllIsFull(t *testing.T) {
	f := newFarm(t, 2, 1, "a", "b", "c")
	f.tick()
	f.want("replicas of idle adapters in two slots", []int{1, 1, 0}, f.sizes("a", "b", "c"))
	f.want("overflow", 0, f.alloc.Overflow())
	f.arrive("a", 9)
	f.arrive("b", 8)
	f.arrive("c", 1)
	f.tick()
	f.want("set of c: its first worker in spite of the slots", lora.Rendezvous("c", ids(1, 2))[:1], f.set("c"))
	f.want("overflow", 1, f.alloc.Overflow())
	where := f.set("c")
	f.arrive("c", 1)
	f.tick()
	f.want("an overflow stays where it is", where, f.set("c"))
	f.workers = append(f.workers, lora.Worker{ID: 3, Slots: 1, Manage: []string{"a", "b", "c"}})
	f.tick()
	f.want("overflow with a free worker", 0, f.alloc.Overflow())
	f.want("set of c", ids(3), f.set("c"))
}

func TestAnActiveAdapterTakesTheSlotOfAnIdleOne(t *testing.T) {
	f := newFarm(t, 2, 1, "a", "b", "c")
	f.tick()
	f.arrive("c", 1)
	f.arrive("a", 1)
	f.plan()
	f.want("replicas", []int{1, 0, 1}, f.sizes("a", "b", "c"))
	f.want("overflow", 0, f.alloc.Overflow())
	to := f.set("c")[0]
	f.want("actions", []lora.Action{{Worker: to, Adapter: "b"}, {Worker: to, Adapter: "c", Load: true}}, f.actions)
}

func TestAShrinkWaitsForTheCooldown(t *testing.T) {
	f := newFarm(t, 4, 1, "a", "b")
	f.tick()
	f.arrive("a", 30)
	f.arrive("b", 1)
	f.tick()
	f.want("replicas", []int{3, 1}, f.sizes("a", "b"))
	f.arrive("b", 299) // smoothed 90.7 against 30: from now on a wants 1, b at least 3
	for i := range 2 {
		f.tick()
		f.want(fmt.Sprint("replicas in tick ", i+1), []int{3, 1}, f.sizes("a", "b"))
	}
	f.tick() // the third
	f.want("replicas after the cooldown", []int{1, 3}, f.sizes("a", "b"))
}

func TestAnInterruptedCooldownBeginsAnew(t *testing.T) {
	cfg := lora.DefaultAllocatorConfig()
	cfg.Alpha, cfg.Window = 1, 3*time.Second // one step is all that counts
	f := newFarm(t, 4, 1, "a", "b")
	f.alloc = lora.NewAllocator(cfg)
	step := func(a, b int) {
		f.now = f.now.Add(lora.DefaultStep - time.Second)
		f.arrive("a", a)
		f.arrive("b", b)
		f.now = f.now.Add(time.Second - lora.DefaultStep)
		f.tick()
	}
	f.tick()
	step(30, 1)
	f.want("replicas", 3, len(f.set("a")))
	for range 3 {
		step(10, 10)
		step(10, 10)
		step(30, 1) // wants 3 again
		f.want("replicas", 3, len(f.set("a")))
	}
}

func TestAnAdapterOfWhichNobodyAsksAnyMoreShrinksToOne(t *testing.T) {
	f := newFarm(t, 3, 2, "a")
	f.tick()
	f.arrive("a", 3)
	f.tick()
	f.want("replicas", 3, len(f.set("a")))
	f.now = f.now.Add(90 * time.Second) // the window is empty
	f.tick()
	_, active, _ := f.table.Of("a")
	f.want("active", false, active)
	f.want("replicas in the cooldown", 3, len(f.set("a")))
	f.tick()
	f.tick()
	f.want("replicas", 1, len(f.set("a")))
	f.want("unloads", 2, len(f.actions))
}

func TestWhatIsLoadedAtTheStartIsWhereItBelongs(t *testing.T) {
	f := newFarm(t, 3, 2, "a")
	last := lora.Rendezvous("a", ids(1, 2, 3))[2]
	f.worker(last).Loaded = []string{"a"}
	f.plan()
	f.want("set", ids(last), f.set("a"))
	f.want("actions", 0, len(f.actions))
}

func TestWhatIsNotManagedTakesSlotsAndIsLeftAlone(t *testing.T) {
	f := newFarm(t, 2, 1, "a")
	first := lora.Rendezvous("a", ids(1, 2))
	f.worker(first[0]).Loaded = []string{"foreign"}
	f.tick()
	f.want("set", first[1:], f.set("a"))
	f.worker(first[1]).Loaded = []string{"a", "foreign"}
	f.plan()
	for _, a := range f.actions {
		if a.Adapter == "foreign" {
			t.Errorf("%+v", a)
		}
	}
}

func TestAnUnmanagedWorkerStandsInTheSetAsItIs(t *testing.T) {
	f := newFarm(t, 2, 2, "a")
	f.workers = append(f.workers, lora.Worker{ID: 9, Loaded: []string{"a"}}, lora.Worker{ID: 10})
	f.plan()
	f.want("set", ids(9), f.set("a"))
	f.want("actions", 0, len(f.actions))
	f.arrive("a", 5)
	f.plan()
	if set := f.set("a"); !slices.Contains(set, 9) || slices.Contains(set, 10) || len(set) != 3 {
		t.Errorf("set %v, want 9 and the managed ones", set)
	}
}

func TestWithoutSlotsOnlyWhatIsLoadedStays(t *testing.T) {
	f := newFarm(t, 2, 0, "a", "b")
	f.worker(2).Loaded = []string{"a"}
	f.arrive("b", 4)
	f.plan()
	f.arrive("b", 4)
	f.plan()
	f.want("set of a", ids(2), f.set("a"))
	f.want("set of b", ids(), f.set("b"))
	f.want("actions", 0, len(f.actions))
}

func TestNothingIsUnloadedBeforeItsReplacementIsLoaded(t *testing.T) {
	f := newFarm(t, 2, 1, "a", "b")
	f.tick()
	here := f.set("a")[0]
	f.worker(here).Manage = []string{"b"} // a has to go, but then nobody manages it here
	f.plan()
	for _, a := range f.actions {
		if a.Worker == here && a.Adapter == "a" {
			t.Errorf("%+v on a worker that does not manage it", a)
		}
	}

	f = newFarm(t, 2, 1, "a")
	f.worker(1).Loaded, f.worker(2).Loaded = []string{"a"}, nil
	f.plan()
	f.worker(1).Slots = 0 // its place is lost, the other one takes over
	f.plan()
	f.want("actions before", []lora.Action{{Worker: 2, Adapter: "a", Load: true}}, f.actions)
	f.worker(2).Loaded = []string{"a"}
	f.plan()
	f.want("actions after", []lora.Action{{Worker: 1, Adapter: "a"}}, f.actions)
}

func TestNamesThatNobodyManagesAreNotCounted(t *testing.T) {
	f := newFarm(t, 1, 1, "a")
	f.tick()
	f.arrive("ghost", 5)
	f.tick()
	if _, _, known := f.table.Of("ghost"); known {
		t.Error("ghost is listed")
	}
	f.workers[0].Manage = []string{"b"}
	f.plan()
	if _, _, known := f.table.Of("a"); known {
		t.Error("a is listed though nobody manages it any more")
	}
}

func TestArrivalsLeaveTheWindow(t *testing.T) {
	f := newFarm(t, 1, 1, "a")
	f.tick()
	f.arrive("a", 1)
	for at := f.now; f.now.Sub(at) < 84*time.Second; {
		f.tick()
		if _, active, _ := f.table.Of("a"); !active {
			t.Fatalf("not active after %s", f.now.Sub(at))
		}
	}
	f.now = f.now.Add(6 * time.Second)
	f.tick()
	if _, active, _ := f.table.Of("a"); active {
		t.Error("active after more than the window")
	}
}

func TestAClockThatGoesBackCountsAsNow(t *testing.T) {
	f := newFarm(t, 1, 1, "a")
	f.tick()
	f.alloc.Arrived("a", f.now.Add(-time.Hour))
	f.tick()
	if _, active, _ := f.table.Of("a"); !active {
		t.Error("an arrival of the past was lost")
	}
}

func TestAllocatorConfigsOutOfRangeNameTheField(t *testing.T) {
	if err := lora.DefaultAllocatorConfig().Validate(); err != nil {
		t.Error(err)
	}
	for field, change := range map[string]func(*lora.AllocatorConfig){
		"window":   func(c *lora.AllocatorConfig) { c.Window = time.Millisecond },
		"alpha":    func(c *lora.AllocatorConfig) { c.Alpha = 0 },
		"cooldown": func(c *lora.AllocatorConfig) { c.Cooldown = 0 },
	} {
		c := lora.DefaultAllocatorConfig()
		change(&c)
		var fe *fleet.FieldError
		if err := c.Validate(); !asField(err, &fe) || fe.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
}

func asField(err error, to **fleet.FieldError) bool { return errors.As(err, to) }
