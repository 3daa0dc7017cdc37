package adapters_test

import (
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/catalog/adapters"
	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/core/lora"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/sim"
)

func TestAnAdapterAppearsOnItsReplicaSet(t *testing.T) {
	b := newBench(t)
	for id := range fleet.WorkerID(3) {
		b.engine(id+1, "vllm", nil)
	}
	b.run(manage(2, "sql", "chat"))
	for _, name := range []string{"sql", "chat"} {
		want := lora.Rendezvous(name, []fleet.WorkerID{1, 2, 3})[:1]
		b.eventually(name+" is loaded where it belongs", func() bool { return slices.Equal(b.holders(name), want) })
		b.eventually("the core knows", func() bool { return b.router.state(want[0], name) == lora.Loaded })
	}
	if got := len(b.Adapters()); got != 6 {
		t.Errorf("%d views, want one for each worker and adapter: %+v", got, b.Adapters())
	}
	if raw := b.get(lora.Rendezvous("sql", []fleet.WorkerID{1, 2, 3})[0], "/v1/models"); !strings.Contains(raw, `"/lora/sql"`) {
		t.Errorf("loaded from elsewhere: %s", raw)
	}
}

// TestRequestsNeverReachAWorkerThatLacksTheAdapter has three adapters compete for
// two slots while requests come in bursts for one after another.
func TestRequestsNeverReachAWorkerThatLacksTheAdapter(t *testing.T) {
	b := newBench(t)
	workers := []fleet.WorkerID{1, 2}
	for _, id := range workers {
		b.engine(id, "vllm", func(c *sim.Config) {
			c.AdapterLoad, c.DecodePerToken, c.AnswerTokens = 10*time.Millisecond, 5*time.Millisecond, 80
		})
	}
	names := []string{"a", "b", "c"}
	b.run(manage(1, names...))

	served := map[string]int{}
	var mu sync.Mutex // guards served
	var clients sync.WaitGroup
	for client := range 12 {
		clients.Go(func() {
			begun := time.Now()
			for n := 0; time.Since(begun) < 4*time.Second; n++ {
				name := names[int(time.Since(begun)/(650*time.Millisecond))%len(names)]
				w, ok := b.router.book(name, workers, n+client)
				if !ok {
					select { // nobody has it yet: a client would come again
					case <-t.Context().Done():
						return
					case <-time.After(5 * time.Millisecond):
					}
					continue
				}
				status, body := b.post(w, "/v1/completions", `{"model":"`+name+`","prompt":"hello"}`)
				b.router.use(w, name, -1)
				if status != 200 {
					t.Errorf("%s on w%d: %d %s", name, w, status, body)
					return
				}
				mu.Lock()
				served[name]++
				mu.Unlock()
			}
		})
	}
	clients.Wait()
	for _, name := range names {
		if served[name] == 0 {
			t.Errorf("%s was never served: %v", name, served)
		}
	}
	for _, id := range workers {
		if raw := b.get(id, "/sim/stats"); !strings.Contains(raw, `"unloaded_in_use":0`) {
			t.Errorf("w%d: an adapter was unloaded while it was used: %s", id, raw)
		}
	}
}

// unloadOf forces a plan that unloads one adapter.
func unloadOf(w fleet.WorkerID, adapter string) func([]lora.Worker) []lora.Action {
	return func([]lora.Worker) []lora.Action { return []lora.Action{{Worker: w, Adapter: adapter}} }
}

func TestAnUnloadWaitsUntilNobodyUsesIt(t *testing.T) {
	b := newBench(t)
	b.engine(1, "vllm", nil)
	b.run(manage(2, "sql"))
	b.eventually("sql is loaded", func() bool { return b.router.state(1, "sql") == lora.Loaded })
	b.router.use(1, "sql", 2)
	b.router.force(unloadOf(1, "sql"))
	b.eventually("no new requests", func() bool { return b.router.state(1, "sql") == lora.Absent })
	if got := b.view("w1", "sql").State; got != adapters.Unloading {
		t.Errorf("state %q", got)
	}
	b.router.use(1, "sql", -1)
	b.plansPass(5)
	if !b.has(1, "sql") {
		t.Fatal("unloaded while it was used")
	}
	b.router.use(1, "sql", -1)
	b.eventually("sql is unloaded", func() bool { return !b.has(1, "sql") })
	b.eventually("the list says so", func() bool { return b.view("w1", "sql").State == adapters.Absent })
}

func TestAnUnloadThatIsNoLongerWantedIsGivenUp(t *testing.T) {
	b := newBench(t)
	b.engine(1, "vllm", nil)
	b.run(manage(2, "sql"))
	b.eventually("sql is loaded", func() bool { return b.router.state(1, "sql") == lora.Loaded })
	b.router.use(1, "sql", 1)
	b.router.force(unloadOf(1, "sql"))
	b.eventually("no new requests", func() bool { return b.router.state(1, "sql") == lora.Absent })
	b.router.force(nil)
	b.eventually("requests again", func() bool { return b.router.state(1, "sql") == lora.Loaded })
	b.router.use(1, "sql", -1)
	b.plansPass(5)
	if !b.has(1, "sql") || b.view("w1", "sql").State != adapters.Loaded {
		t.Errorf("unloaded all the same: %+v", b.Adapters())
	}
}

func TestAFailedLoadIsTriedAgainAndTellsItsReason(t *testing.T) {
	b := newBench(t)
	b.engine(1, "vllm", nil)
	b.post(1, "/sim/faults", `{"kind":"status","status":500,"count":1000,"path":"/v1/load_lora_adapter","body":{"error":{"message":"no such\nfolder","type":"InternalServerError","code":500}}}`)
	b.run(manage(2, "sql"))
	b.eventually("it failed more than once", func() bool { return b.view("w1", "sql").Failures > 2 })
	want := adapters.View{Worker: "w1", Adapter: "sql", State: adapters.Failed, Reason: "load adapter: the engine answered 500: no such folder"}
	got := b.view("w1", "sql")
	for got.State == adapters.Loading { // between two failures
		got = b.view("w1", "sql")
	}
	got.Failures = 0
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("view (-want +got):\n%s", diff)
	}
	if s := b.router.state(1, "sql"); s == lora.Loaded {
		t.Errorf("the core was told %s", s)
	}
	b.clearFaults(1)
	b.eventually("loaded", func() bool {
		v := b.view("w1", "sql")
		return v.State == adapters.Loaded && v.Reason == "" && v.Failures == 0
	})
}

func TestWhatAnEngineHasInSpiteOfARefusalIsLoaded(t *testing.T) {
	b := newBench(t)
	b.engine(1, "vllm", func(c *sim.Config) { c.AdapterLoad = 300 * time.Millisecond })
	other := make(chan int, 1)
	go func() {
		status, _ := b.post(1, "/v1/load_lora_adapter", `{"lora_name":"sql","lora_path":"/lora/sql"}`)
		other <- status
	}()
	b.run(manage(2, "sql")) // asks, finds nothing, and is refused: the other is at it
	b.eventually("loaded, with no failure left", func() bool {
		return b.router.state(1, "sql") == lora.Loaded && b.view("w1", "sql") == adapters.View{Worker: "w1", Adapter: "sql", State: adapters.Loaded}
	})
	<-other
}

func TestARestartedEngineGetsItsAdaptersAgain(t *testing.T) {
	b := newBench(t)
	b.engine(1, "vllm", nil)
	b.run(manage(2, "sql"))
	b.eventually("loaded", func() bool { return b.router.state(1, "sql") == lora.Loaded })
	b.router.force(func([]lora.Worker) []lora.Action { return nil })
	b.post(1, "/sim/restart", "")
	b.eventually("the loss is noticed", func() bool { return b.router.state(1, "sql") == lora.Absent })
	b.router.force(nil)
	b.eventually("loaded again", func() bool { return b.has(1, "sql") && b.router.state(1, "sql") == lora.Loaded })
}

func TestSGLangEnginesAreAskedInTheirWay(t *testing.T) {
	b := newBench(t)
	b.engine(1, "sglang", func(c *sim.Config) { c.MaxAdapters = 1 })
	b.run(manage(1, "a", "b"))
	b.eventually("a is loaded", func() bool { return slices.Equal(b.loaded(1), []string{"a"}) })
	b.router.alloc.Arrived("b", time.Now())
	b.eventually("b takes its slot", func() bool {
		b.router.alloc.Arrived("b", time.Now())
		return slices.Equal(b.loaded(1), []string{"b"})
	})
	b.eventually("without a failure", func() bool {
		return b.view("w1", "b") == adapters.View{Worker: "w1", Adapter: "b", State: adapters.Loaded}
	})
}

func TestASGLangRefusalIsAFailure(t *testing.T) {
	b := newBench(t)
	b.engine(1, "sglang", func(c *sim.Config) { c.MaxAdapters = 1; c.Adapters = []string{"built-in"} })
	b.run(manage(4, "a")) // more slots than the engine has
	b.eventually("refused", func() bool {
		return strings.Contains(b.view("w1", "a").Reason, "the engine answered 400: 1 adapters are loaded")
	})
}

func TestOnlyWhatIsManagedIsTouched(t *testing.T) {
	b := newBench(t)
	b.engine(1, "vllm", func(c *sim.Config) { c.Adapters = []string{"foreign"} })
	b.engine(2, "trtllm", nil)
	b.engine(3, "vllm", nil)
	b.workers.remove(3)
	b.workers.add(fleet.Record{ID: 3, Name: "w3", URL: b.urls[3], Model: "another", Engine: "vllm", Adapters: []fleet.Adapter{{Name: "own"}}}, core.Ready)
	b.engine(4, "vllm", nil)
	b.workers.remove(4)
	b.workers.add(fleet.Record{ID: 4, Name: "w4", URL: b.urls[4], Model: "sim-model", Engine: "vllm"}, core.Incomplete)
	b.run(manage(4, "sql"))
	b.eventually("loaded", func() bool { return slices.Equal(b.loaded(1), []string{"foreign", "sql"}) })
	b.eventually("the core knows the foreign one", func() bool { return b.router.state(1, "foreign") == lora.Loaded })
	b.plansPass(3)
	for _, id := range []fleet.WorkerID{2, 3, 4} {
		if got := b.loaded(id); len(got) != 0 {
			t.Errorf("w%d has %v", id, got)
		}
	}
	b.router.mu.Lock()
	defer b.router.mu.Unlock()
	want := []lora.Worker{
		{ID: 1, Slots: 4, Loaded: []string{"foreign", "sql"}, Manage: []string{"sql"}},
		{ID: 2},
		{ID: 3, Loaded: []string{"own"}},
	}
	slices.SortFunc(b.router.last, func(x, y lora.Worker) int { return int(x.ID) - int(y.ID) })
	if diff := cmp.Diff(want, b.router.last); diff != "" {
		t.Errorf("planned for (-want +got):\n%s", diff)
	}
}

// TestWhatNobodyManagesMayLeaveNoSlot: it is never unloaded, and the operator is told
// why the managed one does not come.
func TestWhatNobodyManagesMayLeaveNoSlot(t *testing.T) {
	b := newBench(t)
	b.engine(1, "vllm", func(c *sim.Config) { c.Adapters = []string{"foreign"} })
	b.run(manage(1, "sql"))
	want := []adapters.View{{Worker: "w1", Adapter: "sql", State: adapters.NoSlot, Reason: "its slots are filled by what nobody manages: 1 of 1"}}
	b.eventually("told", func() bool { return cmp.Equal(want, b.Adapters()) })
	if got := b.loaded(1); !slices.Equal(got, []string{"foreign"}) {
		t.Errorf("loaded are %v", got)
	}
}

func TestASilentEngineDelaysNoOther(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0") // takes connections and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	b := newBench(t)
	b.engine(1, "vllm", nil)
	b.run(manage(2, "sql"))
	b.workers.add(fleet.Record{ID: 2, Name: "w2", URL: "http://" + ln.Addr().String(), Model: "sim-model", Engine: "vllm"}, core.Ready)
	b.eventually("loaded", func() bool { return b.has(1, "sql") })
	b.plansPass(3)
	if s := b.router.state(2, "sql"); s != lora.Absent {
		t.Errorf("the core was told %s", s)
	}
}

func TestAnotherConfigurationIsInForceAtOnce(t *testing.T) {
	b := newBench(t)
	b.engine(1, "vllm", nil)
	b.run(adapters.DefaultConfig())
	b.plansPass(2)
	if got := b.loaded(1); len(got) != 0 {
		t.Errorf("loaded %v", got)
	}
	b.Configure(manage(2, "sql"))
	b.eventually("loaded", func() bool { return b.has(1, "sql") })
	b.eventually("in the list", func() bool { return b.view("w1", "sql").State == adapters.Loaded })
	b.Configure(manage(2, "chat"))
	b.eventually("the other is loaded as well", func() bool { return slices.Equal(b.loaded(1), []string{"chat", "sql"}) })
	if v := b.view("w1", "sql"); v != (adapters.View{}) {
		t.Errorf("still in the list: %+v", v)
	}
}

func TestAWorkerThatLeavesIsForgotten(t *testing.T) {
	b := newBench(t)
	b.engine(1, "vllm", nil)
	b.run(manage(2, "sql"))
	b.eventually("loaded", func() bool { return b.router.state(1, "sql") == lora.Loaded })
	b.router.use(1, "sql", 1) // and an unload waits
	b.router.force(unloadOf(1, "sql"))
	b.eventually("unloading", func() bool { return b.view("w1", "sql").State == adapters.Unloading })
	b.workers.remove(1)
	b.eventually("no longer in the list", func() bool { return len(b.Adapters()) == 0 })
	if !b.has(1, "sql") {
		t.Error("unloaded after it had left")
	}
}

func TestRunEndsWithALoadUnderWay(t *testing.T) {
	b := newBench(t)
	b.engine(1, "vllm", func(c *sim.Config) { c.AdapterLoad = time.Minute })
	b.run(manage(2, "sql"))
	b.eventually("loading", func() bool {
		return b.view("w1", "sql").State == adapters.Loading && b.router.state(1, "sql") == lora.Loading
	})
	// What the cleanup of run waits for would last a minute otherwise.
}

func TestNothingIsPlacedOnAnEngineThatStopsTelling(t *testing.T) {
	b := newBench(t)
	b.engine(1, "vllm", nil)
	b.run(manage(2, "sql"))
	planned := func() bool {
		b.router.mu.Lock()
		defer b.router.mu.Unlock()
		return len(b.router.last) > 0
	}
	b.eventually("loaded", func() bool { return planned() && b.router.state(1, "sql") == lora.Loaded })
	b.post(1, "/sim/faults", `{"kind":"status","status":503,"count":1000,"path":"/v1/models"}`)
	b.eventually("planned without it", func() bool { return !planned() })
	if s := b.router.state(1, "sql"); s != lora.Loaded {
		t.Errorf("the core was told %s of what nobody knows", s)
	}
	b.clearFaults(1)
	b.eventually("planned with it again", planned)
}
