package selection_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
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
	asked.Prompt, asked.Allow = promptFor(&req.Prompt), slices.Clone(req.Allow)
	l.request.Store(&asked)
	return l.SelectionCore.Select(ctx, req)
}

func (l *listener) Reserve(ctx context.Context, b *core.Booking) (*core.Selection, error) {
	asked := *b
	asked.Prompt = promptFor(&b.Prompt)
	asked.Worker, asked.Rank, asked.Uncached, asked.TrackPrefill = copied(b.Worker), copied(b.Rank), copied(b.Uncached), copied(b.TrackPrefill)
	l.booking.Store(&asked)
	return l.SelectionCore.Reserve(ctx, b)
}

// promptFor is a prompt for itself: the service uses its lists again.
func promptFor(p *core.Prompt) core.Prompt {
	out := *p
	out.Tokens, out.Blocks, out.Sequences, out.Multimodal = slices.Clone(p.Tokens), slices.Clone(p.Blocks), slices.Clone(p.Sequences), slices.Clone(p.Multimodal)
	for i, items := range out.Multimodal {
		out.Multimodal[i] = slices.Clone(items)
	}
	return out
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

// asked are the paths of the fields that a body has, such as a.b.
func asked(v any, path string, into map[string]bool) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			asked(e, path, into)
		}
	case map[string]any:
		for name, e := range v {
			into[strings.TrimPrefix(path+"."+name, ".")] = true
			asked(e, path+"."+name, into)
		}
	}
}

// describes are the paths of the fields that a schema has.
func describes(schema map[string]any, path string, into map[string]bool) {
	if items, is := schema["items"].(map[string]any); is {
		describes(items, path, into)
	}
	properties, _ := schema["properties"].(map[string]any)
	for name, of := range properties {
		into[strings.TrimPrefix(path+"."+name, ".")] = true
		describes(of.(map[string]any), path+"."+name, into)
	}
}

// haveAll wants some body to have each field that the route describes.
func (w *world) haveAll(t *testing.T, route string, bodies ...string) {
	t.Helper()
	described, had := map[string]bool{}, map[string]bool{}
	describes(w.schemas(t)[route]["post"], "", described)
	for _, body := range bodies {
		var v any
		if err := json.Unmarshal([]byte(body), &v); err != nil {
			t.Fatal(err)
		}
		asked(v, "", had)
	}
	if !described["token_ids"] || !described["router_config_override.assume_kv_reuse"] {
		t.Fatalf("%s describes %v", route, described)
	}
	for path := range described {
		if !had[path] {
			t.Errorf("no body has %s", path)
		}
	}
}

// adapted has two ranks, a taint and an adapter.
func adapted(r *fleet.Record) {
	r.DPSize, r.Taints, r.Adapters = 2, []string{"c"}, []fleet.Adapter{{Name: "lo"}}
}

// No field of a body is read and then dropped, but where another counts in its place.
func TestEveryFieldOfASelectionReachesTheCore(t *testing.T) {
	w, l := listening(t, func(c *selection.Config) { c.PolicyHeaders = []string{"x-team"} })
	w.join(t, worker(3, adapted))
	id, rank, no := fleet.WorkerID(3), uint32(1), false
	bodies := []string{
		`{"selection_id":"s","model_name":"default","routing_group":"default","token_ids":[1,2,3],"cache_salt":"salt","is_eagle":false,"lora_name":"lo",` +
			`"block_mm_infos":[null,{"mm_objects":[{"mm_hash":18446744073709551615,"offsets":[[0,1]]},{"mm_hash":5,"offsets":[]}]}],` +
			`"router_config_override":{"overlap_score_credit":2,"prefill_load_scale":3,"router_temperature":0.5,"shared_cache_multiplier":0.25,` +
			`"assume_kv_reuse":false,"track_prefill_tokens":false},"expected_output_tokens":9,"priority_jump":1.5,"strict_priority":4,` +
			`"session_id":"flat","session_context":{"session_id":"deep","parent_session_id":"above","session_final":true,"input_trigger":"tool_result","agent_headers":{"X-Agent":["a","b"]}},` +
			`"pinned_worker":{"worker_id":3,"dp_rank":1},"affinity_target":{"worker_id":3,"dp_rank":1},"allowed_worker_ids":[3,"1"],` +
			`"routing_constraints":{"required_taints":["c"],"preferred_taints":{"b":0.5}}}`,
		`{"selection_id":"t","block_hashes":[1,-1],"sequence_hashes":[2,18446744073709551614],"isl_tokens":8,"lora_name":"nobodys","session_id":"flat",` +
			`"router_config_override":{"prefill_load_scale":3,"overlap_score_weight":4}}`,
		`{"selection_id":"u","token_ids":[1],"mm_routing_info":{"routing_token_ids":[7,8],"block_mm_infos":[{"mm_objects":[{"mm_hash":6,"offsets":[]}]}]}}`,
	}
	w.haveAll(t, "/select_and_reserve", bodies...)
	for i, want := range []core.Request{
		{
			SelectionID: "s", Partition: fleet.PartitionKey{Model: "default", Group: "default"}, Adapter: "lo",
			Prompt:         core.Prompt{Tokens: []uint32{1, 2, 3}, Salt: "salt", Bigram: &no, Multimodal: [][]uint64{nil, {1<<64 - 1, 5}}},
			ExpectedOutput: 9, PriorityJump: 1500 * time.Millisecond, Priority: 4,
			SessionContext: &core.SessionContext{ID: "deep", Parent: "above", Final: true, Trigger: core.TriggerToolResult, AgentHeaders: map[string]string{"x-agent": "a, b"}},
			Pin:            &core.Pin{ID: &id, Rank: &rank}, Target: &core.Pin{ID: &id, Rank: &rank}, Allow: []string{"3", "1"},
			Constraints: core.Constraints{RequiredTaints: []string{"c"}, PreferredTaints: map[string]float64{"b": 0.5}},
			AssumeReuse: &no, TrackPrefill: &no,
			Overrides: map[string]json.RawMessage{
				"overlap_credit": json.RawMessage("2"), "prefill_load_scale": json.RawMessage("3"), "temperature": json.RawMessage("0.5"), "shared_weight": json.RawMessage("0.25"),
			},
		},
		{
			SelectionID: "t", Session: "flat", Overrides: map[string]json.RawMessage{"prefill_load_scale": json.RawMessage("4")},
			Prompt: core.Prompt{Blocks: []kvcache.BlockHash{1, 1<<64 - 1}, Sequences: []kvcache.SequenceHash{2, 1<<64 - 2}, Count: 8, Exact: true, Scope: "nobodys"},
		},
		{SelectionID: "u", Prompt: core.Prompt{Tokens: []uint32{7, 8}, Multimodal: [][]uint64{{6}}}},
	} {
		want.Kind, want.Surface, want.Class, want.Headers, want.Detail = core.Book, "selection", "fast", map[string]string{"x-team": "red"}, true
		w.do(t, "POST", "/select_and_reserve", bodies[i], "x-dynamo-meta-policy-class", "fast", "x-team", "red").want(t, 200)
		got := *l.request.Load()
		if got.Arrival.IsZero() {
			t.Error("it has no arrival")
		}
		if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(core.Request{}, "Arrival", "Seed"), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("the core was asked otherwise (-want +got)\n%s", diff)
		}
	}
}

// What chooses a worker (block hashes, the policy's settings, the length of the answer)
// may stand in a booking that names one, and counts for nothing.
func TestEveryFieldOfABookingReachesTheCore(t *testing.T) {
	w, l := listening(t, nil)
	w.join(t, worker(3, adapted))
	id, one, rank, yes, no, left, none := fleet.WorkerID(3), fleet.WorkerID(1), uint32(1), true, false, 2, 0
	bodies := []string{
		`{"selection_id":"s","model_name":"default","routing_group":"default","token_ids":[1,2,3,4,5],"cache_salt":"salt","is_eagle":false,"lora_name":"lo",` +
			`"block_mm_infos":[{"mm_objects":[{"mm_hash":5,"offsets":[[0,1]]}]}],"worker_id":3,"dp_rank":1,"effective_prefill_tokens":2,"track_prefill_tokens":true,` +
			`"router_config_override":{"assume_kv_reuse":false,"track_prefill_tokens":false},"expected_output_tokens":9}`,
		`{"selection_id":"t","block_hashes":[1],"sequence_hashes":[2,3],"isl_tokens":8,"lora_name":"nobodys","worker_id":1,"router_config_override":{"track_prefill_tokens":false,` +
			`"overlap_score_credit":2,"prefill_load_scale":3,"router_temperature":0.5,"shared_cache_multiplier":0.25,"overlap_score_weight":4}}`,
		`{"selection_id":"u","token_ids":[1],"mm_routing_info":{"routing_token_ids":[7,8],"block_mm_infos":[{"mm_objects":[{"mm_hash":6,"offsets":[]}]}]},"worker_id":1}`,
	}
	w.haveAll(t, "/reservations", bodies...)
	for i, want := range []core.Booking{
		{
			SelectionID: "s", Partition: fleet.PartitionKey{Model: "default", Group: "default"}, Adapter: "lo", Worker: &id, Rank: &rank, Uncached: &left,
			AssumeReuse: &no, TrackPrefill: &yes, Prompt: core.Prompt{Tokens: []uint32{1, 2, 3, 4, 5}, Salt: "salt", Bigram: &no, Multimodal: [][]uint64{{5}}},
		},
		{
			SelectionID: "t", Worker: &one, Uncached: &none, TrackPrefill: &no,
			Prompt: core.Prompt{Sequences: []kvcache.SequenceHash{2, 3}, Count: 8, Exact: true, Scope: "nobodys"},
		},
		{SelectionID: "u", Worker: &one, Uncached: &none, Prompt: core.Prompt{Tokens: []uint32{7, 8}, Multimodal: [][]uint64{{6}}}},
	} {
		w.post(t, "/reservations", bodies[i]).want(t, 201)
		if diff := cmp.Diff(want, *l.booking.Load(), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("the core was asked otherwise (-want +got)\n%s", diff)
		}
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
