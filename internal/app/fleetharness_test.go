package app_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"

	"github.com/routerd/routerd/catalog"
	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/internal/app"
	"github.com/routerd/routerd/internal/testkit"
	"github.com/routerd/routerd/sim"
)

// oneModel is the partition of the fleets in these tests.
var oneModel = fleet.PartitionKey{Model: "m", Group: "default"}

// builtins answers every rule with the default policy; gate, unless nil, is called first.
type builtins struct {
	handle *policy.Handle
	gate   func(fleet.PartitionKey)
}

func (b *builtins) Resolve(key fleet.PartitionKey, _ string) (*policy.Handle, error) {
	if b.gate != nil {
		b.gate(key)
	}
	return b.handle, nil
}

func kvAware(t *testing.T) *builtins {
	t.Helper()
	spec := policy.Spec{Scorers: []policy.ScorerSpec{{StageSpec: policy.StageSpec{Use: "builtin:kv-aware"}}}}
	p, digests, err := policy.Compile(t.Context(), spec, nil)
	if err != nil {
		t.Fatal(err)
	}
	h, err := policy.NewHandle(policy.NewRevision("default", 1, spec, p, digests))
	if err != nil {
		t.Fatal(err)
	}
	return &builtins{handle: h}
}

// mute are engines that tell nothing.
type mute struct{}

func (mute) Configured(string) int { return 0 }

func (mute) Ask(context.Context, fleet.Record) (catalog.Facts, error) {
	return catalog.Facts{}, errors.New("connection refused")
}

// fleetOf is a running fleet; streams tells whether it listens to engines.
func fleetOf(t *testing.T, streams bool, change func(*app.FleetParts)) *app.Fleet {
	t.Helper()
	parts := app.FleetParts{Policies: kvAware(t), Engines: mute{}}
	if change != nil {
		change(&parts)
	}
	seed := uint64(1)
	cfg := core.DefaultConfig()
	cfg.Seed = &seed
	f, err := app.NewFleet(parts, cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = f.Run(ctx, streams) })
	t.Cleanup(func() { f.Core.Close(); cancel(); running.Wait() })
	return f
}

// wish is a worker that nobody but the test watches.
func wish(t *testing.T, id fleet.WorkerID, change func(*fleet.Record)) fleet.Record {
	t.Helper()
	r := fleet.Record{ID: id, Name: fmt.Sprintf("w%d", id), URL: fmt.Sprintf("http://127.0.0.1:%d", 8000+id), Model: "m", BlockSize: 16, NoHealthCheck: true}
	if change != nil {
		change(&r)
	}
	r, err := r.Normalised()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// behind is a worker that an engine stands behind.
func behind(t *testing.T, id fleet.WorkerID, e *sim.Engine, change func(*fleet.Record)) fleet.Record {
	t.Helper()
	return wish(t, id, func(r *fleet.Record) {
		r.URL, r.KVEvents, r.Replay = e.URL(), e.EventEndpoints(), e.ReplayEndpoints()
		if change != nil {
			change(r)
		}
	})
}

func applied(t *testing.T, f *app.Fleet, list ...fleet.Record) {
	t.Helper()
	if err := f.Reconciler.Apply(t.Context(), "file", list); err != nil {
		t.Fatal(err)
	}
}

// book asks for a worker, with an id of its own.
func book(t *testing.T, f *app.Fleet, id string, change func(*core.Request)) (*core.Selection, error) {
	t.Helper()
	r := &core.Request{Kind: core.Book, SelectionID: id, Partition: oneModel, Prompt: core.Prompt{Tokens: tokensFrom(7, 64)}}
	if change != nil {
		change(r)
	}
	return f.Core.Select(t.Context(), r)
}

func pinned(id fleet.WorkerID, rank uint32) func(*core.Request) {
	return func(r *core.Request) { r.Pin = &core.Pin{ID: &id, Rank: &rank} }
}

// tokensFrom are n token ids that begin with first.
func tokensFrom(first, n int) []uint32 {
	out := make([]uint32, n)
	for i := range out {
		out[i] = uint32(first + i)
	}
	return out
}

// active are the requests that the core counts by rank.
func active(f *app.Fleet) map[fleet.Worker]int {
	out := map[fleet.Worker]int{}
	for _, p := range f.Core.Partitions() {
		for _, r := range p.Ranks {
			out[fleet.Worker{ID: r.Worker, Rank: r.Rank}] = int(r.Load.ActiveRequests)
		}
	}
	return out
}

// fill has a rank of an engine cache tokens.
func fill(t *testing.T, e *sim.Engine, rank int, tokens []uint32) {
	t.Helper()
	body, err := json.Marshal(map[string]any{"model": "m", "prompt": tokens, "max_tokens": 1})
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, e.URL()+"/v1/completions", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-data-parallel-rank", fmt.Sprint(rank))
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(resp.Body)
	if err != nil || resp.Body.Close() != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("status %d, %v: %s", resp.StatusCode, err, answer)
	}
}

// published is what an engine says of one rank.
type published struct {
	NextSeq         uint64 `json:"next_seq"`
	Blocks          int    `json:"blocks"`
	ReplaysAnswered uint64 `json:"replays_answered"`
}

func stats(t *testing.T, e *sim.Engine, rank int) published {
	t.Helper()
	resp, err := client.Get(e.URL() + "/sim/stats")
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Ranks []published `json:"ranks"`
	}
	if err := errors.Join(json.NewDecoder(resp.Body).Decode(&got), resp.Body.Close()); err != nil {
		t.Fatal(err)
	}
	return got.Ranks[rank]
}

// heard waits until a rank's stream has all that its engine has said.
func heard(t *testing.T, f *app.Fleet, e *sim.Engine, w fleet.Worker) {
	t.Helper()
	testkit.Until(t, "rank "+w.String()+" has heard all", func() bool {
		want := stats(t, e, int(w.Rank))
		st, _ := f.Stream(w)
		return st.Trusted && f.Blocks(oneModel, w) == want.Blocks && (want.NextSeq == 0 || st.Seen && st.LastSeq+1 == want.NextSeq)
	})
}
