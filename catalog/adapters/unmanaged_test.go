package adapters_test

import (
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/catalog/adapters"
	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/core/lora"
	"github.com/routerd/routerd/fleet"
)

// listing is a ready worker whose record lists adapters.
func (b *bench) listing(id fleet.WorkerID, name, url string, listed ...string) {
	b.urls[id] = url
	r := fleet.Record{ID: id, Name: name, URL: url, Model: "sim-model", Engine: "vllm"}
	for _, a := range listed {
		r.Adapters = append(r.Adapters, fleet.Adapter{Name: a})
	}
	b.workers.add(r, core.Ready)
}

// The last managed adapter is taken out of the configuration: the engine still has
// it, and requests for it go on until somebody unloads it.
func TestWhatIsLoadedIsServedThoughNobodyManagesItAnyMore(t *testing.T) {
	b := newBench(t)
	b.engine(1, "vllm", nil)
	b.run(manage(2, "sql"))
	b.eventually("sql is loaded", func() bool { return b.router.state(1, "sql") == lora.Loaded })
	b.Configure(adapters.DefaultConfig())
	b.eventually("planned without managing it", func() bool {
		return cmp.Equal([]lora.Worker{{ID: 1, Loaded: []string{"sql"}}}, b.router.planned())
	})
	b.plansPass(3)
	if s := b.router.state(1, "sql"); s != lora.Loaded || !b.has(1, "sql") {
		t.Errorf("the core was told %s", s)
	}
	if got := b.Adapters(); len(got) != 0 {
		t.Errorf("listed as managed: %+v", got)
	}
	if status, body := b.post(1, "/v1/unload_lora_adapter", `{"lora_name":"sql"}`); status != http.StatusOK {
		t.Fatal(status, body)
	}
	b.eventually("taken back", func() bool { return !b.router.told(1, "sql") })
	b.eventually("planned as any other", func() bool { return cmp.Equal([]lora.Worker{{ID: 1}}, b.router.planned()) })
}

// As long as it is managed, a worker that lists an adapter in its record and has not
// loaded it is told to lack it. After that the record counts.
func TestWhatAnUnmanagedWorkerLacksIsTakenBack(t *testing.T) {
	b := newBench(t)
	b.engine(1, "vllm", nil)
	b.workers.remove(1)
	b.listing(1, "w1", b.urls[1], "sql")
	b.router.force(func([]lora.Worker) []lora.Action { return nil })
	b.run(manage(2, "sql"))
	b.eventually("the core is told", func() bool { return b.router.told(1, "sql") })
	if s := b.router.state(1, "sql"); s != lora.Absent {
		t.Errorf("told %s", s)
	}
	b.Configure(adapters.DefaultConfig())
	b.eventually("taken back", func() bool { return !b.router.told(1, "sql") })
	b.eventually("planned as any other", func() bool {
		return cmp.Equal([]lora.Worker{{ID: 1, Loaded: []string{"sql"}}}, b.router.planned())
	})
}

// One of two is taken out: the worker is managed all the same.
func TestAnAdapterOfAManagedWorkerThatIsManagedNoMoreIsTakenBack(t *testing.T) {
	b := newBench(t)
	b.engine(1, "vllm", nil)
	b.router.force(func([]lora.Worker) []lora.Action { return nil })
	b.run(manage(2, "sql", "chat"))
	b.eventually("the core is told of both", func() bool { return b.router.told(1, "sql") && b.router.told(1, "chat") })
	b.Configure(manage(2, "chat"))
	b.eventually("taken back", func() bool { return !b.router.told(1, "sql") })
	b.plansPass(2)
	if !b.router.told(1, "chat") {
		t.Error("of the other nothing is told any more")
	}
}

// Nobody knows what a silent engine has that is not managed any more.
func TestWhatWasToldOfASilentUnmanagedWorkerIsTakenBack(t *testing.T) {
	b := newBench(t)
	b.engine(1, "vllm", nil)
	b.run(manage(2, "sql"))
	b.eventually("sql is loaded", func() bool { return b.router.state(1, "sql") == lora.Loaded })
	b.post(1, "/sim/faults", `{"kind":"status","status":503,"count":1000,"path":"/v1/models"}`)
	b.Configure(adapters.DefaultConfig())
	b.eventually("taken back", func() bool { return !b.router.told(1, "sql") })
	b.eventually("planned as any other", func() bool { return cmp.Equal([]lora.Worker{{ID: 1}}, b.router.planned()) })
}

// The configuration changes while the worker is not ready.
func TestAWorkerThatComesBackUnmanagedIsAskedFirst(t *testing.T) {
	b := newBench(t)
	b.engine(1, "vllm", nil)
	b.run(manage(2, "sql"))
	b.eventually("sql is loaded", func() bool { return b.router.state(1, "sql") == lora.Loaded })
	b.workers.stand(1, core.Ejected)
	b.eventually("planned without it", func() bool { return len(b.router.planned()) == 0 })
	b.Configure(adapters.DefaultConfig())
	b.post(1, "/sim/restart", "") // and has lost it
	b.plansPass(2)
	b.workers.stand(1, core.Ready)
	b.eventually("taken back", func() bool { return !b.router.told(1, "sql") })
}
