package app_test

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	dto "github.com/prometheus/client_model/go"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/ingress/zmq"
	"github.com/routerd/routerd/internal/app"
	"github.com/routerd/routerd/internal/testkit"
	"github.com/routerd/routerd/kvcache"
	"github.com/routerd/routerd/sim"
	"github.com/routerd/routerd/sim/simtest"
)

// An engine that puts a token of its own before each prompt stores blocks that nobody asks for.
func TestAnEngineThatStoresOtherBlocksIsToldAndNotTrusted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, err := app.NewFleet(app.FleetParts{Policies: kvAware(t), Engines: mute{}}, core.DefaultConfig())
		if err != nil {
			t.Fatal(err)
		}
		w := fleet.Worker{ID: 1}
		if err := f.Core.Prepare(t.Context(), oneModel, 16); err != nil {
			t.Fatal(err)
		}
		rec := fleet.Record{ID: 1, Name: "w1", URL: "http://w1.test", Model: "m"}
		if err := f.Core.Commit(core.Change{Upserts: []core.Member{{Record: rec, Lifecycle: core.Ready, BlockSize: 16}}}); err != nil {
			t.Fatal(err)
		}
		cache := f.Cache(oneModel)
		cache.State(w, zmq.Status{Trusted: true})
		for i := range uint32(6) {
			tokens := make([]uint32, 32)
			for j := range tokens {
				tokens[j] = 1000*i + uint32(j)
			}
			if !cache.Trusted(w) {
				t.Fatalf("not trusted after %d prompts", i)
			}
			if _, err := f.Core.Select(t.Context(), &core.Request{Kind: core.Book, Partition: oneModel, Prompt: core.Prompt{Tokens: tokens}}); err != nil {
				t.Fatal(err)
			}
			cache.Apply(w, []kvcache.Event{{
				Kind: kvcache.Stored, BlockSize: 16, Tokens: append([]uint32{1}, tokens[:31]...),
				Hashes: []kvcache.EngineHash{kvcache.NumberHash(uint64(2 * i)), kvcache.NumberHash(uint64(2*i + 1))},
			}})
			if i < 5 {
				<-time.After(time.Minute)
			}
		}
		if st := f.Status(oneModel, w); cache.Trusted(w) || st.Trusted || st.Untrusted != "hash_mismatch" {
			t.Errorf("trusted %v, status %+v", cache.Trusted(w), st)
		}
		st := f.Status(oneModel, w)
		if got, want := app.OfBlocks(0, &st), "kv_hash_mismatch: rank 0: its overlap counts as not trusted"; got != want {
			t.Errorf("its worker's reason is %q, want %q", got, want)
		}
		if n := f.Log.Count("hash_mismatch"); n != 1 {
			t.Errorf("told %d times:\n%s", n, &f.Log)
		}
		families, err := f.Reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(families, func(m *dto.MetricFamily) bool { return m.GetName() == "routerd_index_hash_mismatch_ranks" })
		if i < 0 || families[i].GetMetric()[0].GetGauge().GetValue() != 1 {
			t.Errorf("the metrics do not tell of one rank: %v", families)
		}
		f.Core.Close()
	})
}

// An engine that stores blocks of another size than its record says is told with that size.
func TestAWorkersReasonsSayWhatSizeItsBlocksHave(t *testing.T) {
	e := simtest.Start(t, func(c *sim.Config) { c.Model, c.BlockSize = "m", 32 })
	r := startReloadable(t, settings(t))
	body := fmt.Sprintf(`{"url":%q,"model":"m","block_size":16,"kv_events":{"0":%q}}`, e.URL(), e.EventEndpoints()[0])
	if status, answer := r.call(t, http.MethodPut, "/v1/workers/w1", r.Token(), []byte(body)); status != http.StatusCreated {
		t.Fatalf("%d %s", status, answer)
	}
	type worker struct{ Reasons []string }
	prompt := make([]int, 64)
	want := worker{[]string{"kv_block_size_mismatch: rank 0: its events tell of blocks of 32 tokens; its overlap counts as not trusted"}}
	testkit.Until(t, "the reason is there", func() bool {
		prompt[0]++
		caches(t, e, prompt)
		return cmp.Equal(want, show[worker](t, r, "/v1/workers/w1"))
	})
	if n := r.log.Count("blocks of another size"); n != 1 || r.log.Count("stored=32 block_size=16") != 1 {
		t.Errorf("told %d times:\n%s", n, r.log)
	}
}
