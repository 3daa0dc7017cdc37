package selection_test

import (
	"context"
	"encoding/json"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/kvcache"
	"github.com/routerd/routerd/selection"
)

// listener is a core that keeps what it was last asked.
type listener struct {
	*core.SelectionCore
	request atomic.Pointer[core.Request]
	booking atomic.Pointer[core.Booking]
}

func (l *listener) Select(ctx context.Context, req *core.Request) (*core.Selection, error) {
	asked := *req
	asked.Prompt.Tokens = append([]uint32{}, req.Prompt.Tokens...) // the service uses its lists again
	asked.Allow = append([]string{}, req.Allow...)
	l.request.Store(&asked)
	return l.SelectionCore.Select(ctx, req)
}

func (l *listener) Reserve(ctx context.Context, b *core.Booking) (*core.Selection, error) {
	asked := *b
	asked.Prompt.Tokens = append([]uint32{}, b.Prompt.Tokens...)
	asked.Worker, asked.Rank, asked.Uncached, asked.TrackPrefill = copied(b.Worker), copied(b.Rank), copied(b.Uncached), copied(b.TrackPrefill)
	l.booking.Store(&asked)
	return l.SelectionCore.Reserve(ctx, b)
}

// copied is what p points to, for itself.
func copied[T any](p *T) *T {
	if p == nil {
		return nil
	}
	v := *p
	return &v
}

// listening is a world whose core keeps what it was asked.
func listening(t *testing.T, config func(*selection.Config)) (*world, *listener) {
	t.Helper()
	l := &listener{}
	w := two(t, options{config: config, parts: func(p *selection.Parts) {
		l.SelectionCore = p.Core.(*core.SelectionCore)
		p.Core = l
	}})
	return w, l
}

// No field of a body is read and then dropped.
func TestEveryFieldOfASelectionReachesTheCore(t *testing.T) {
	w, l := listening(t, func(c *selection.Config) { c.PolicyHeaders = []string{"x-team"} })
	a := w.do(t, "POST", "/select_and_reserve", `{"selection_id":"s","model_name":"default","routing_group":"default","token_ids":[1,2,3],"cache_salt":"salt","is_eagle":false,`+
		`"router_config_override":{"overlap_score_credit":2,"assume_kv_reuse":false,"track_prefill_tokens":false},"expected_output_tokens":9,"priority_jump":1.5,"strict_priority":4,`+
		`"session_id":"flat","session_context":{"session_id":"deep","parent_session_id":"above","session_final":true,"input_trigger":"tool_result","agent_headers":{"X-Agent":["a","b"]}},`+
		`"pinned_worker":{"worker_id":2,"dp_rank":1},"affinity_target":{"worker_id":2,"dp_rank":1},"allowed_worker_ids":[2,"1"],`+
		`"routing_constraints":{"required_taints":[],"preferred_taints":{"b":0.5}}}`, "x-dynamo-meta-policy-class", "fast", "x-team", "red")
	a.want(t, 200)
	id, rank, no := fleet.WorkerID(2), uint32(1), false
	want := core.Request{
		Kind: core.Book, SelectionID: "s", Surface: "selection", Partition: fleet.PartitionKey{Model: "default", Group: "default"}, Class: "fast",
		Prompt:         core.Prompt{Tokens: []uint32{1, 2, 3}, Salt: "salt", Bigram: &no},
		ExpectedOutput: 9, PriorityJump: 1500 * time.Millisecond, Priority: 4,
		SessionContext: &core.SessionContext{ID: "deep", Parent: "above", Final: true, Trigger: core.TriggerToolResult, AgentHeaders: map[string]string{"x-agent": "a, b"}},
		Pin:            &core.Pin{ID: &id, Rank: &rank}, Target: &core.Pin{ID: &id, Rank: &rank}, Allow: []string{"2", "1"},
		Constraints: core.Constraints{PreferredTaints: map[string]float64{"b": 0.5}},
		AssumeReuse: &no, TrackPrefill: &no, Headers: map[string]string{"x-team": "red"}, Detail: true,
	}
	got := *l.request.Load()
	if got.Arrival.IsZero() || len(got.Overrides) != 1 {
		t.Errorf("arrival %v, overrides %v", got.Arrival, got.Overrides)
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(core.Request{}, "Arrival", "Overrides", "Seed"), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("the core was asked otherwise (-want +got)\n%s", diff)
	}
}

func TestEveryFieldOfABookingReachesTheCore(t *testing.T) {
	w, l := listening(t, nil)
	w.post(t, "/reservations", `{"selection_id":"s","token_ids":[1,2,3,4,5],"cache_salt":"salt","worker_id":2,"dp_rank":1,"effective_prefill_tokens":2,"track_prefill_tokens":true,`+
		`"router_config_override":{"assume_kv_reuse":false}}`).want(t, 201)
	id, rank, yes, no, left := fleet.WorkerID(2), uint32(1), true, false, 2
	want := core.Booking{
		SelectionID: "s", Worker: &id, Rank: &rank, Uncached: &left, AssumeReuse: &no, TrackPrefill: &yes,
		Prompt: core.Prompt{Tokens: []uint32{1, 2, 3, 4, 5}, Salt: "salt"},
	}
	if diff := cmp.Diff(want, *l.booking.Load(), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("the core was asked otherwise (-want +got)\n%s", diff)
	}
	for _, field := range []string{`"session_id":"s"`, `"session_context":{"session_id":"s"}`, `"advisory":true`} {
		w.post(t, "/reservations", `{"selection_id":"t","token_ids":[1],"worker_id":2,`+field+`}`).want(t, 400)
	}
	w.post(t, "/select_and_reserve", `{"token_ids":[1],"advisory":false}`).want(t, 400)
}

func TestRow_AnAdvisoryUnderASelectionIDIsKeptToo(t *testing.T) {
	w := two(t, options{})
	w.post(t, "/select", `{"token_ids":[1,2,3,4,5],"selection_id":"adv","advisory":true}`).want(t, 200)
	w.post(t, "/reservations", `{"selection_id":"adv"}`).want(t, 201)
	if n, prefill, _ := w.active(); n != 1 || prefill != 5 {
		t.Errorf("%d bookings with %d tokens", n, prefill)
	}
}

func TestRow_APinThatContradictsTheAffinityTarget(t *testing.T) {
	w := two(t, options{})
	for target, status := range map[string]int{
		`{"worker_id":1}`:               400,
		`{"worker_id":2,"dp_rank":0}`:   503,
		`{"worker_id":2,"dp_rank":1}`:   200,
		`{"worker_id":2}`:               200,
		`{"worker_id":77}`:              200, // nobody to follow
		`{"worker_id":2,"dp_rank":7}`:   200,
		`{"worker_id":"1","dp_rank":3}`: 200,
	} {
		a := w.post(t, "/select", `{"token_ids":[1],"pinned_worker":{"worker_id":2,"dp_rank":1},"affinity_target":`+target+`}`)
		if a.status != status {
			t.Errorf("%s: got %d, want %d: %s", target, a.status, status, a.body)
		}
	}
	w.post(t, "/select", `{"token_ids":[1],"pinned_worker":{"worker_id":2,"dp_rank":1},"affinity_target":{"worker_id":1},"allowed_worker_ids":[2]}`).want(t, 200)
}

// What the caller itself rules out is told apart from a fleet without workers.
func TestRow_NobodyIsLeftByTheCallersOwnLimits(t *testing.T) {
	w := two(t, options{})
	for body, item := range map[string]string{
		`"allowed_worker_ids":[98]`:                            "allowed_worker_ids",
		`"routing_constraints":{"required_taints":["absent"]}`: "routing_constraints",
	} {
		a := w.post(t, "/select", `{"token_ids":[1],`+body+`}`).want(t, 503)
		if got := a.at(t, "error.details.item"); got != item {
			t.Errorf("%s: item %q: %s", body, got, a.body)
		}
	}
}

// shared is a cache outside the workers that holds the first blocks of any prompt.
type shared uint32

func (s shared) Hits(_ context.Context, _ fleet.PartitionKey, _ []kvcache.SequenceHash, out []kvcache.BlockRange) ([]kvcache.BlockRange, error) {
	return append(out, kvcache.BlockRange{Start: 0, End: uint32(s)}), nil
}

func TestRow_OverlapScoresCountWhatTheSharedCacheHoldsBeyondTheDevice(t *testing.T) {
	w := two(t, options{host: core.SelectionHost{SharedCache: shared(2)}})
	w.cache.store(t, fleet.Worker{ID: 1}, kvcache.Device, 1, 2, 3, 4)
	a := w.post(t, "/overlap_scores", `{"token_ids":[1,2,3,4,5,6,7,8,9,10,11,12]}`).want(t, 200)
	var got struct {
		Workers []struct {
			Shared int `json:"shared_beyond_device_blocks"`
		} `json:"workers"`
	}
	if err := json.Unmarshal(a.body, &got); err != nil || len(got.Workers) != 3 || got.Workers[0].Shared != 1 || got.Workers[1].Shared != 2 {
		t.Errorf("%v: %s", err, a.body)
	}
}

func TestRow_Health(t *testing.T) {
	w := newWorld(t, options{})
	if got := string(w.do(t, "GET", "/health", "").want(t, 200).body); got != `{"status":"ok"}` {
		t.Errorf("got %s", got)
	}
}

func TestRow_ReplicaSyncIsDisabled(t *testing.T) {
	w := newWorld(t, options{})
	for _, r := range [][2]string{{"GET", "/replica_sync/peers"}, {"POST", "/replica_sync/register_peer"}, {"POST", "/replica_sync/deregister_peer"}} {
		body := ""
		if r[0] == "POST" {
			body = `{"endpoint":"tcp://127.0.0.1:1"}`
		}
		if got := w.do(t, r[0], r[1], body).want(t, 409).at(t, "error.details.step"); got != "disabled" {
			t.Errorf("%s: step %q", r[1], got)
		}
	}
}
