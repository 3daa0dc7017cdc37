package app_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/ingress/zmq"
	"github.com/routerd/routerd/internal/app"
	"github.com/routerd/routerd/kvcache"
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
