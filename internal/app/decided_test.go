package app_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/core/reserve"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/indexer/indextest"
	"github.com/routerd/routerd/ingress/zmq"
	"github.com/routerd/routerd/internal/app"
	"github.com/routerd/routerd/internal/config"
	"github.com/routerd/routerd/kvcache"
)

// deciding is a fleet over an index of a configuration, with some workers of one rank that are ready.
func deciding(t *testing.T, workers int, index config.Index) *app.Fleet {
	t.Helper()
	f, err := app.NewFleet(app.FleetParts{Policies: kvAware(t), Engines: mute{}, Index: index}, core.DefaultConfig())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Core.Close)
	if err := f.Core.Prepare(t.Context(), oneModel, 16); err != nil {
		t.Fatal(err)
	}
	var ch core.Change
	for i := range workers {
		rec := fleet.Record{ID: fleet.WorkerID(i + 1), Name: fmt.Sprint("w", i+1), URL: fmt.Sprintf("http://w%d.test", i+1), Model: "m"}
		ch.Upserts = append(ch.Upserts, core.Member{Record: rec, Lifecycle: core.Ready, BlockSize: 16})
	}
	if err := f.Core.Commit(ch); err != nil {
		t.Fatal(err)
	}
	return f
}

// decide books a prompt and ends it at once.
func decide(t *testing.T, f *app.Fleet, p core.Prompt) *core.Selection {
	t.Helper()
	sel, err := f.Core.Select(t.Context(), &core.Request{Kind: core.Book, Partition: oneModel, Prompt: p})
	if err != nil {
		t.Fatal(err)
	}
	sel.Reservation.Release(reserve.Outcome{Kind: reserve.Completed})
	return sel
}

// decisions are the limits of an index of decisions.
func decisions() config.IndexOwn {
	return config.IndexOwn{TTL: config.Duration(time.Minute), MaxBytes: 1 << 20}
}

func idsFrom(first uint32) []uint32 {
	ids := make([]uint32, 320)
	for i := range ids {
		ids[i] = first + uint32(i)
	}
	return ids
}

func TestWithoutEventsADecisionIsTheNextRequestsOverlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := deciding(t, 8, config.Index{Kind: config.IndexApprox, Decisions: decisions()})
		prompt := core.Prompt{Tokens: idsFrom(0)}
		first := decide(t, f, prompt)
		second := decide(t, f, prompt)
		if first.Overlap.Device != 0 || second.Overlap.Device != 20 || second.Worker != first.Worker {
			t.Errorf("%s with %+v, then %s with %+v; want the same with 20 blocks", first.Worker, first.Overlap, second.Worker, second.Overlap)
		}
		if st := f.Status(oneModel, first.Worker); st.Source != "decisions" || st.Trusted || st.Blocks["device"] != 20 {
			t.Errorf("status %+v", st)
		}
		<-time.After(61 * time.Second)
		if sel := decide(t, f, prompt); sel.Overlap.Device != 0 {
			t.Errorf("%+v after the TTL", sel.Overlap)
		}
		if err := f.Core.Commit(core.Change{Removals: []fleet.WorkerID{1, 2, 3, 4, 5, 6, 7, 8}}); err != nil {
			t.Fatal(err)
		}
		for id := range fleet.WorkerID(8) {
			if st := f.Status(oneModel, fleet.Worker{ID: id + 1}); st.Blocks["device"] != 0 {
				t.Errorf("worker %d has left: %+v", id+1, st)
			}
		}
		f.Close()
	})
}

func TestAPromptThatIsKnownByItsTextIsFoundBesideEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := deciding(t, 8, config.Index{Kind: config.IndexExact, Decisions: decisions()})
		prompt := core.Prompt{Blocks: []kvcache.BlockHash{1, 2, 3}, Count: 48}
		first := decide(t, f, prompt)
		if second := decide(t, f, prompt); second.Overlap.Device != 3 || second.Worker != first.Worker {
			t.Errorf("found %+v at %s, want 3 blocks at %s", second.Overlap, second.Worker, first.Worker)
		}
		exact := core.Prompt{Tokens: idsFrom(0)}
		decide(t, f, exact)
		if again := decide(t, f, exact); again.Overlap.Device != 0 {
			t.Errorf("%+v of a prompt of tokens that no event told of", again.Overlap)
		}
		// A prompt of tokens is looked out for, one of text is not: engines never tell of that.
		cache := f.Cache(oneModel)
		cache.State(first.Worker, zmq.Status{Trusted: true})
		for i := range uint64(10) {
			cache.Record(first.Worker, []kvcache.BlockHash{kvcache.BlockHash(100 + i)}, false)
			cache.Apply(first.Worker, []kvcache.Event{{
				Kind: kvcache.Stored, BlockSize: 16, Tokens: idsFrom(uint32(1000 * i))[:16], Hashes: []kvcache.EngineHash{kvcache.NumberHash(i)},
			}})
			<-time.After(2 * time.Minute)
		}
		if !cache.Trusted(first.Worker) {
			t.Error("not trusted since its engine told of no text")
		}
		// An engine that starts anew has nothing of either kind.
		decide(t, f, prompt)
		for w := range fleet.WorkerID(8) {
			cache.Clear(fleet.Worker{ID: w + 1})
		}
		if sel := decide(t, f, prompt); sel.Overlap.Device != 0 {
			t.Errorf("%+v after the engines started anew", sel.Overlap)
		}
		// Nor has one that tells that it cleared its cache.
		for w := range fleet.WorkerID(8) {
			cache.Apply(fleet.Worker{ID: w + 1}, []kvcache.Event{{Kind: kvcache.Cleared}})
		}
		if sel := decide(t, f, prompt); sel.Overlap.Device != 0 {
			t.Errorf("%+v after the engines cleared their caches", sel.Overlap)
		}
		f.Close()
	})
}

func TestADecisionCountsUntilEventsConfirmIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := deciding(t, 8, config.Index{Kind: config.IndexExact, PredictedTTL: config.Duration(2 * time.Second), Decisions: decisions()})
		prompt := core.Prompt{Tokens: idsFrom(0)}
		first := decide(t, f, prompt)
		if second := decide(t, f, prompt); second.Overlap.Device != 20 || second.Worker != first.Worker {
			t.Errorf("found %+v at %s, want 20 blocks at %s", second.Overlap, second.Worker, first.Worker)
		}
		cache := f.Cache(oneModel)
		stored := kvcache.Event{Kind: kvcache.Stored, BlockSize: 16, Tokens: prompt.Tokens}
		for i := range uint64(20) {
			stored.Hashes = append(stored.Hashes, kvcache.NumberHash(i))
		}
		cache.Apply(first.Worker, []kvcache.Event{stored})
		cache.Apply(first.Worker, []kvcache.Event{{Kind: kvcache.Removed, Hashes: stored.Hashes[5:]}})
		if sel := decide(t, f, prompt); sel.Overlap.Device != 5 {
			t.Errorf("found %+v after an eviction, want 5 blocks", sel.Overlap)
		}
		other := core.Prompt{Tokens: idsFrom(5000)}
		decide(t, f, other)
		<-time.After(3 * time.Second)
		if sel := decide(t, f, other); sel.Overlap.Device != 0 {
			t.Errorf("found %+v, though no event confirmed it in time", sel.Overlap)
		}
		f.Close()
	})
}

// The contract holds for the index of a partition, as the core asks it.
func TestI3_ThePartitionsIndexOfDecisionsEqualsThePlainModel(t *testing.T) {
	indextest.Run(t, func(blockSize int) app.Decided {
		return app.NewDecided(config.Index{Kind: config.IndexApprox, Decisions: decisions()}, blockSize)
	}, indextest.TTL(time.Minute), indextest.Seeds(20))
}

func TestWithoutEventsNobodyListens(t *testing.T) {
	cfg := settings(t)
	cfg.Index.Kind = config.IndexApprox
	r := startReloadable(t, cfg)
	body := []byte(`{"url":"http://127.0.0.1:1","model":"a","block_size":16,"no_health_check":true,"kv_events":{"0":"tcp://127.0.0.1:1"}}`)
	if status, answer := r.call(t, http.MethodPut, "/v1/workers/w1", r.Token(), body); status != http.StatusCreated {
		t.Fatalf("%d %s", status, answer)
	}
	got := show[struct {
		Reasons []string
		Ranks   []struct {
			Source string `json:"kv_source"`
		}
	}](t, r, "/v1/workers/w1")
	if len(got.Reasons) > 0 || len(got.Ranks) != 1 || got.Ranks[0].Source != "decisions" {
		t.Errorf("got %+v", got)
	}
	if n := r.log.Count("are not listened to"); n != 1 {
		t.Errorf("told %d times:\n%s", n, r.log)
	}
	_, metrics := r.call(t, http.MethodGet, "/metrics", r.Token(), nil)
	for line := range strings.Lines(string(metrics)) {
		if strings.HasPrefix(line, "routerd_ingress_streams{") && !strings.HasSuffix(line, " 0\n") {
			t.Errorf("a stream is open: %s", line)
		}
	}
}
