package core_test

import (
	"log/slog"
	"testing"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/internal/testkit"
)

func TestAnAdapterOfTwoModelsIsLoggedOnceEachTime(t *testing.T) {
	log := new(testkit.Log)
	c := core.New(core.DefaultConfig(), core.SelectionHost{}, newWorld(t, use("builtin:kv-aware"), nil).policies, core.NoIndex{}, slog.New(slog.NewTextHandler(log, nil)))
	commit := func(name, model string, adapters ...string) {
		t.Helper()
		m := core.Member{Record: record(name, model), Lifecycle: core.Ready}
		for _, a := range adapters {
			m.Record.Adapters = append(m.Record.Adapters, fleet.Adapter{Name: a})
		}
		if err := c.Prepare(t.Context(), m.Record.Partition(), 16); err != nil {
			t.Fatal(err)
		}
		if err := c.Commit(core.Change{Upserts: []core.Member{m}}); err != nil {
			t.Fatal(err)
		}
	}
	const told = `level=WARN msg="requests for an adapter go to another model" adapter=sql partition=b:default model=a`
	for step, want := range []int{0, 1, 1, 1, 2} {
		switch step {
		case 0:
			commit("w1", "b", "sql")
		case 1:
			commit("w2", "a", "sql")
		case 2:
			commit("w3", "b", "sql", "more")
		case 3:
			commit("w2", "a")
		case 4:
			commit("w2", "a", "sql")
		}
		if n := log.Count(told); n != want {
			t.Errorf("after step %d it is told %d times, want %d\n%s", step, n, want, log)
		}
	}
}
