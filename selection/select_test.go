package selection_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/core/queue"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/kvcache"
)

// two makes a world with worker 1, which gives its capacity, and worker 2, which has
// two ranks.
func two(t testing.TB, o options) *world {
	t.Helper()
	w := newWorld(t, o)
	w.join(t, worker(1, func(r *fleet.Record) { r.MaxBatchedTokens, r.TotalKVBlocks, r.Taints = 100, 50, []string{"b"} }),
		worker(2, func(r *fleet.Record) { r.DPSize = 2 }))
	return w
}

const nine = `"token_ids":[1,2,3,4,5,6,7,8,9]`

func TestRow_SelectAnswersAllFieldsAndBooksNothing(t *testing.T) {
	w := two(t, options{})
	got := w.post(t, "/select", `{`+nine+`,"pinned_worker":{"worker_id":1,"dp_rank":0}}`).want(t, 200)
	want := `{"model_name":"default","routing_group":"default","worker_id":1,"dp_rank":0,"endpoint":"http://127.0.0.1:20001","block_size":4,` +
		`"overlap":{"longest_matched":0,"gpu":0,"dp":{"0":0},"cpu":0,"disk":0},"effective_prefill_tokens":9,"potential_decode_blocks":3}`
	if d := cmp.Diff(want, string(got.body)); d != "" {
		t.Error(d)
	}
	if got := got.header.Get("Content-Type"); got != "application/json" {
		t.Errorf("content type %q", got)
	}
	if n, _, _ := w.active(); n != 0 {
		t.Errorf("%d bookings", n)
	}
	w.post(t, "/reservations", `{"selection_id":""}`).want(t, 400)
}

func TestRow_SelectOverlapIsInTokensAndCumulativeByTier(t *testing.T) {
	w := two(t, options{})
	w.cache.store(t, fleet.Worker{ID: 2, Rank: 1}, kvcache.Device, 1, 2, 3, 4)
	w.cache.store(t, fleet.Worker{ID: 2, Rank: 1}, kvcache.Host, 1, 2, 3, 4, 5, 6, 7, 8)
	w.cache.store(t, fleet.Worker{ID: 2, Rank: 1}, kvcache.Disk, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12)
	w.cache.store(t, fleet.Worker{ID: 2, Rank: 1}, kvcache.Shared, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16)
	got := w.post(t, "/select", `{"token_ids":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17]}`).want(t, 200)
	for path, want := range map[string]string{
		"worker_id": "2", "dp_rank": "1", "overlap.longest_matched": "16", "overlap.gpu": "4", "overlap.cpu": "8", "overlap.disk": "16", "overlap.dp.0": "0", "overlap.dp.1": "4",
	} {
		if got := got.at(t, path); got != want {
			t.Errorf("%s is %s, want %s", path, got, want)
		}
	}
}

func TestRow_SelectWithASelectionIDIsKeptForReservations(t *testing.T) {
	w := two(t, options{})
	if got := w.post(t, "/select", `{"selection_id":"c1",`+nine+`}`).want(t, 200).at(t, "selection_id"); got != "c1" {
		t.Errorf("selection_id %s", got)
	}
	w.post(t, "/reservations", `{"selection_id":"c1"}`).want(t, 201)
	if n, _, _ := w.active(); n != 1 {
		t.Errorf("%d bookings", n)
	}
}

func TestRow_SelectAndReserveBooksAtOnce(t *testing.T) {
	w := two(t, options{})
	got := w.post(t, "/select_and_reserve", `{"selection_id":"r1",`+nine+`,"expected_output_tokens":10,"pinned_worker":{"worker_id":1,"dp_rank":0}}`).want(t, 200)
	want := `{"selection_id":"r1","sequence_hashes":[-3803038269031200164,4945711292740353085],"isl_tokens":9,"track_prefill_tokens":true,` +
		`"model_name":"default","routing_group":"default","worker_id":1,"dp_rank":0,"endpoint":"http://127.0.0.1:20001","block_size":4,` +
		`"overlap":{"longest_matched":0,"gpu":0,"dp":{"0":0},"cpu":0,"disk":0},"effective_prefill_tokens":9,"potential_decode_blocks":3}`
	if d := cmp.Diff(want, string(got.body)); d != "" {
		t.Error(d)
	}
	if n, prefill, decode := w.active(); n != 1 || prefill != 9 || decode != 3 {
		t.Errorf("loads %d %d %g", n, prefill, decode)
	}
}

func TestRow_SelectionIDIsMadeWhenAbsent(t *testing.T) {
	w := two(t, options{})
	seen := map[string]bool{}
	for range 20 {
		id := w.post(t, "/select_and_reserve", `{"token_ids":[1]}`).want(t, 200).at(t, "selection_id")
		if len(id) < 16 || seen[id] {
			t.Fatalf("id %q", id)
		}
		seen[id] = true
	}
	for id := range seen {
		w.do(t, "DELETE", "/reservations/"+id, "").want(t, 200)
	}
	if n, _, _ := w.active(); n != 0 {
		t.Errorf("%d bookings left", n)
	}
}

func TestRow_AdvisoryAnswersAtOnceWithTheLoad(t *testing.T) {
	w := two(t, options{core: func(c *core.Config) {
		c.Queue.Classes[0].Busy.ActiveRequests = 1
		c.Queue.Classes[0].Timeout = 50 * time.Millisecond
		c.Queue.Classes[0].Limits.Requests = 0
	}})
	pin := `"pinned_worker":{"worker_id":1,"dp_rank":0}`
	w.post(t, "/select_and_reserve", `{`+nine+`,`+pin+`}`).want(t, 200)
	w.post(t, "/select", `{"token_ids":[7],`+pin+`}`).want(t, 429)
	got := w.post(t, "/select", `{"advisory":true,"token_ids":[7],`+pin+`}`).want(t, 200)
	for path, want := range map[string]string{
		"worker_load.active_prefill_tokens": "9", "worker_load.prefill_token_capacity": "100", "worker_load.total_kv_blocks": "50", "selection_id": "absent",
	} {
		if got := got.at(t, path); got != want {
			t.Errorf("%s is %s, want %s", path, got, want)
		}
	}
	got = w.post(t, "/select", `{"advisory":true,"token_ids":[7],"pinned_worker":{"worker_id":2,"dp_rank":1}}`).want(t, 200)
	if c, total := got.at(t, "worker_load.prefill_token_capacity"), got.at(t, "worker_load.total_kv_blocks"); c != "10000000" || total != "absent" {
		t.Errorf("capacity %s, blocks %s", c, total)
	}
}

func TestRow_PlainSelectWhileBusyGoesThroughTheQueueAndItsLimit(t *testing.T) {
	w := two(t, options{core: func(c *core.Config) {
		c.Queue.Classes[0].Busy.PrefillTokens = 5
		c.Queue.Classes[0].Timeout = 20 * time.Millisecond
	}})
	for range 3 {
		w.post(t, "/select_and_reserve", `{"token_ids":[1,2,3,4,5,6,7,8,9]}`).want(t, 200)
	}
	if a := w.post(t, "/select", `{"token_ids":[7]}`).want(t, 429); a.header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	w.post(t, "/select", `{"token_ids":[7],"advisory":true}`).want(t, 200)
}

func TestRow_ExplicitClassWithAHighThresholdIsAdmittedAtOnce(t *testing.T) {
	w := two(t, options{core: func(c *core.Config) {
		c.Queue.Classes[0].Busy.PrefillTokens = 5
		c.Queue.Classes[0].Timeout = 20 * time.Millisecond
		high := c.Queue.Classes[0]
		high.Name, high.Busy = "high", queue.Busy{PrefillTokens: 1000}
		c.Queue.Classes = append(c.Queue.Classes, high)
	}})
	for range 3 {
		w.post(t, "/select_and_reserve", `{"token_ids":[1,2,3,4,5,6,7,8,9]}`).want(t, 200)
	}
	w.post(t, "/select", `{"token_ids":[7]}`, "X-Dynamo-Meta-Policy-Class", "high").want(t, 200)
	w.post(t, "/select", `{"token_ids":[7]}`, "X-Routerd-Class", "high").want(t, 200)
	w.post(t, "/select", `{"token_ids":[7]}`, "X-Dynamo-Meta-Policy-Class", "unknown").want(t, 429)
}

func TestRow_UnknownPolicyClassHeaderIsIgnored(t *testing.T) {
	w := two(t, options{})
	w.post(t, "/select", `{"token_ids":[7]}`, "x-dynamo-meta-policy-class", "nobody knows").want(t, 200)
}

func TestRow_PostSelectBeforeAnyWorkerAndUnknownModel(t *testing.T) {
	w := newWorld(t, options{})
	w.post(t, "/select", `{"token_ids":[1]}`).want(t, 503)
	w.join(t, worker(1))
	a := w.post(t, "/select", `{"token_ids":[1],"model_name":"nope","routing_group":"g"}`).want(t, 503)
	if !strings.Contains(string(a.body), "nope") || !strings.Contains(string(a.body), "=g") {
		t.Errorf("it names not model and group: %s", a.body)
	}
}

func TestRow_ModelNameOmittedIsDefault(t *testing.T) {
	w := newWorld(t, options{})
	w.join(t, worker(1), worker(2, func(r *fleet.Record) { r.Model, r.Group = "m", "g" }))
	for body, want := range map[string]string{`{"token_ids":[1]}`: "1", `{"token_ids":[1],"model_name":"m","routing_group":"g"}`: "2"} {
		if got := w.post(t, "/select", body).want(t, 200).at(t, "worker_id"); got != want {
			t.Errorf("%s: worker %s", body, got)
		}
	}
}

func TestRow_PinnedWorker(t *testing.T) {
	w := two(t, options{})
	for body, status := range map[string]int{
		`{"worker_id":99,"dp_rank":0}`:                           404, // 503 in Dynamo: a named difference
		`{"worker_id":2,"dp_rank":7}`:                            404,
		`{"worker_id":2}`:                                        422,
		`{"dp_rank":0}`:                                          422,
		`{"worker_id":2,"dp_rank":1},"allowed_worker_ids":[1]`:   400,
		`{"worker_id":2,"dp_rank":1},"allowed_worker_ids":[1,2]`: 200,
		`{"worker_id":2,"dp_rank":7},"allowed_worker_ids":[1]`:   400,
		`{"worker_id":99,"dp_rank":0},"allowed_worker_ids":[1]`:  400,
		`{"worker_id":99,"dp_rank":0},"allowed_worker_ids":[99]`: 404,
		`{"worker_id":"2","dp_rank":1}`:                          200,
		`{"worker_id":-2,"dp_rank":1}`:                           400,
		`null`:                                                   200,
		`[]`:                                                     422,
		`{"worker_id":2,"dp_rank":1},"routing_constraints":{"required_taints":["b"]}`: 503,
	} {
		if a := w.post(t, "/select", `{"token_ids":[1],"pinned_worker":`+body+`}`); a.status != status {
			t.Errorf("%s: got %d, want %d: %s", body, a.status, status, a.body)
		}
	}
}

func TestRow_AllowedWorkersAndTaintsThatLeaveNobody(t *testing.T) {
	w := two(t, options{})
	for body, status := range map[string]int{
		`"allowed_worker_ids":[]`:                                   503,
		`"allowed_worker_ids":[98,99]`:                              503,
		`"allowed_worker_ids":null`:                                 200,
		`"routing_constraints":{"required_taints":["absent"]}`:      503,
		`"routing_constraints":{"required_taints":["b"]}`:           200,
		`"routing_constraints":{"preferred_taints":{"absent":1.5}}`: 200,
		`"routing_constraints":{}`:                                  200,
	} {
		if a := w.post(t, "/select", `{"token_ids":[1],`+body+`}`); a.status != status {
			t.Errorf("%s: got %d, want %d: %s", body, a.status, status, a.body)
		}
	}
	for weight, want := range map[string]string{"1": "1", "-1": "2", "-5": "2"} {
		if got := w.post(t, "/select", `{"token_ids":[1,2,3],"routing_constraints":{"preferred_taints":{"b":`+weight+`}}}`).want(t, 200).at(t, "worker_id"); got != want {
			t.Errorf("weight %s: worker %s", weight, got)
		}
	}
}

func TestRow_AffinityTarget(t *testing.T) {
	w := two(t, options{})
	for body, want := range map[string]string{`{"worker_id":2,"dp_rank":1}`: "2", `{"worker_id":1}`: "1", `{"worker_id":2,"dp_rank":null}`: "2"} {
		for range 5 {
			if got := w.post(t, "/select", `{"token_ids":[1],"affinity_target":`+body+`}`).want(t, 200).at(t, "worker_id"); got != want {
				t.Errorf("%s: worker %s", body, got)
			}
		}
	}
	w.post(t, "/select", `{"token_ids":[1],"affinity_target":{"worker_id":77}}`).want(t, 200)
	w.post(t, "/select", `{"token_ids":[1],"affinity_target":{}}`).want(t, 422)
}

func TestRow_AffinityTargetWithoutARankLetsThePolicyChooseAmongItsRanks(t *testing.T) {
	w := two(t, options{})
	w.cache.store(t, fleet.Worker{ID: 1}, kvcache.Device, 1, 2, 3, 4)
	w.cache.store(t, fleet.Worker{ID: 2, Rank: 1}, kvcache.Device, 1, 2, 3, 4)
	a := w.post(t, "/select", `{"token_ids":[1,2,3,4,5],"affinity_target":{"worker_id":2}}`).want(t, 200)
	if a.at(t, "worker_id") != "2" || a.at(t, "dp_rank") != "1" {
		t.Errorf("got %s, want the rank that holds the prompt", a.body)
	}
	a = w.post(t, "/select", `{"token_ids":[1,2,3,4,5],"affinity_target":{"worker_id":2,"dp_rank":0}}`).want(t, 200)
	if a.at(t, "worker_id") != "2" || a.at(t, "dp_rank") != "0" {
		t.Errorf("got %s, want the rank that is named", a.body)
	}
}

func TestRow_SelectOverlapIsTheMostThatAnyRankOfTheWorkerHolds(t *testing.T) {
	w := two(t, options{})
	w.cache.store(t, fleet.Worker{ID: 2}, kvcache.Device, 1, 2, 3, 4)
	w.cache.store(t, fleet.Worker{ID: 2, Rank: 1}, kvcache.Host, 1, 2, 3, 4, 5, 6, 7, 8)
	a := w.post(t, "/select", `{"token_ids":[1,2,3,4,5,6,7,8,9],"pinned_worker":{"worker_id":2,"dp_rank":0}}`).want(t, 200)
	for path, want := range map[string]string{
		"dp_rank": "0", "overlap.longest_matched": "8", "overlap.gpu": "4", "overlap.cpu": "8", "overlap.disk": "8", "overlap.dp.0": "4", "overlap.dp.1": "0",
		"effective_prefill_tokens": "5",
	} {
		if got := a.at(t, path); got != want {
			t.Errorf("%s is %s, want %s", path, got, want)
		}
	}
}

func TestRow_EmptyTokenIDs(t *testing.T) {
	w := two(t, options{})
	a := w.post(t, "/select_and_reserve", `{"token_ids":[]}`).want(t, 200)
	if a.at(t, "isl_tokens") != "0" || a.at(t, "potential_decode_blocks") != "0" || a.at(t, "sequence_hashes") != "[]" {
		t.Errorf("got %s", a.body)
	}
	// They count as given: the hashes beside them do not.
	a = w.post(t, "/select_and_reserve", `{"token_ids":[],"block_hashes":[1],"sequence_hashes":[2],"isl_tokens":4}`).want(t, 200)
	if a.at(t, "isl_tokens") != "0" {
		t.Errorf("got %s", a.body)
	}
}

func TestRow_PromptByHashes(t *testing.T) {
	w := two(t, options{})
	a := w.post(t, "/select_and_reserve", `{"selection_id":"h1","block_hashes":[1,2],"sequence_hashes":[3,-4],"isl_tokens":8}`).want(t, 200)
	if a.at(t, "sequence_hashes") != "[3 -4]" || a.at(t, "isl_tokens") != "8" || a.at(t, "potential_decode_blocks") != "2" {
		t.Errorf("got %s", a.body)
	}
	a = w.post(t, "/select_and_reserve", `{"block_hashes":[1],"sequence_hashes":[18446744073709551615],"isl_tokens":4}`).want(t, 200)
	if a.at(t, "sequence_hashes") != "[-1]" {
		t.Errorf("unsigned hashes: %s", a.body)
	}
	for body, want := range map[string]string{
		`{}`:                   "block_hashes is required without token_ids",
		`{"token_ids":null}`:   "block_hashes is required without token_ids",
		`{"block_hashes":[1]}`: "sequence_hashes is required without token_ids",
		`{"block_hashes":[1],"sequence_hashes":[3]}`:                  "isl_tokens is required without token_ids",
		`{"block_hashes":[1],"sequence_hashes":[3],"isl_tokens":0}`:   "isl_tokens must be greater than 0",
		`{"block_hashes":[1,2],"sequence_hashes":[3],"isl_tokens":8}`: "block_hashes length 2 must match sequence_hashes length 1",
	} {
		a := w.post(t, "/select", body).want(t, 400)
		if got := a.at(t, "error.message"); got != want {
			t.Errorf("%s: %q", body, got)
		}
	}
}

func TestRow_MultimodalPrompts(t *testing.T) {
	w := two(t, options{})
	hashes := func(body string) string {
		return w.post(t, "/select_and_reserve", body).want(t, 200).at(t, "sequence_hashes")
	}
	plain := hashes(`{"token_ids":[0,1,2,3,4,5,6,7]}`)
	// The golden vector of reference/routing.md: item 12345 in block 0.
	marked := hashes(`{"token_ids":[0,1,2,3,4,5,6,7],"block_mm_infos":[{"mm_objects":[{"mm_hash":12345,"offsets":[[0,2]]}]},null]}`)
	if first := fmt.Sprint(int64(0x5bc1bee95b0f6c1b)); !strings.HasPrefix(marked, "["+first+" ") {
		t.Errorf("got %s, want %s first", marked, first)
	}
	if hashes(`{"token_ids":[9,9,9,9],"mm_routing_info":{"routing_token_ids":[0,1,2,3,4,5,6,7],"block_mm_infos":[{"mm_objects":[{"mm_hash":12345,"offsets":[]}]}]}}`) != marked {
		t.Error("routing tokens do not win over token_ids")
	}
	if hashes(`{"token_ids":[0,1,2,3,4,5,6,7],"mm_routing_info":{"routing_token_ids":[]}}`) != plain {
		t.Error("empty routing tokens win over token_ids")
	}
	for body, status := range map[string]int{
		`"block_mm_infos":[{"mm_objects":[{"mm_hash":5}]}]`:                    422,
		`"block_mm_infos":[{}]`:                                                422,
		`"block_mm_infos":[{"mm_objects":[{"mm_hash":-5,"offsets":[]}]}]`:      400,
		`"block_mm_infos":[{"mm_objects":[{"mm_hash":5,"offsets":[[1]]}]}]`:    422,
		`"block_mm_infos":[{"mm_objects":[{"mm_hash":5,"offsets":[],"x":1}]}]`: 400,
		`"mm_routing_info":{"block_mm_infos":[]}`:                              422,
		`"mm_routing_info":{"routing_token_ids":[1,2,-3]}`:                     400,
		`"block_mm_infos":[7]`:                                                 422,
	} {
		if a := w.post(t, "/select", `{"token_ids":[1],`+body+`}`); a.status != status {
			t.Errorf("%s: got %d, want %d: %s", body, a.status, status, a.body)
		}
	}
}

// B2's other half is the frontend's: ids there get the hashes that kvcache computes.
func TestB2_TokenIDsGetTheBlockHashesOfTheFrontend(t *testing.T) {
	w := two(t, options{})
	ids, text := make([]uint32, 64), make([]string, 64)
	for i := range ids {
		ids[i] = uint32(i * 1999)
		text[i] = fmt.Sprint(ids[i])
	}
	got := w.post(t, "/select_and_reserve", `{"token_ids":[`+strings.Join(text, ", ")+`]}`).want(t, 200).at(t, "sequence_hashes")
	blocks, err := kvcache.BlockHashes(nil, ids, blockSize, kvcache.Seed("", ""))
	if err != nil {
		t.Fatal(err)
	}
	want := make([]int64, len(blocks))
	for i, h := range kvcache.SequenceHashes(nil, blocks) {
		want[i] = int64(h)
	}
	if d := cmp.Diff(fmt.Sprint(want), got); d != "" || len(want) != 16 {
		t.Error(d)
	}
}

func TestQ9_PinsAndAllowSetsNeverLeadToAnotherWorker(t *testing.T) {
	w := two(t, options{core: func(c *core.Config) {
		c.Queue.Classes[0].Busy.ActiveRequests = 1
		c.Queue.Classes[0].Timeout = 20 * time.Millisecond
	}})
	pin := `{"token_ids":[1],"pinned_worker":{"worker_id":1,"dp_rank":0}`
	w.post(t, "/select_and_reserve", pin+`}`).want(t, 200)
	w.post(t, "/select_and_reserve", pin+`}`).want(t, 429)
	w.post(t, "/select_and_reserve", `{"token_ids":[1],"pinned_worker":{"worker_id":9,"dp_rank":0}}`).want(t, 404)
	w.post(t, "/select_and_reserve", pin+`,"allowed_worker_ids":[2]}`).want(t, 400)
	w.put(t, core.Draining, worker(2, func(r *fleet.Record) { r.DPSize = 2 }))
	w.post(t, "/select_and_reserve", `{"token_ids":[1],"allowed_worker_ids":[2]}`).want(t, 503)
	if n, _, _ := w.active(); n != 1 {
		t.Errorf("%d bookings", n)
	}
}

func TestRow_RouterConfigOverrideTakesEffect(t *testing.T) {
	w := newWorld(t, options{})
	w.join(t, worker(1), worker(2))
	w.cache.store(t, fleet.Worker{ID: 1}, kvcache.Device, 1, 2, 3, 4, 5, 6, 7, 8)
	w.post(t, "/select_and_reserve", `{"token_ids":[50,51],"pinned_worker":{"worker_id":1,"dp_rank":0}}`).want(t, 200)
	pick := func(override string) string {
		return w.post(t, "/select", `{`+nine+`,"router_config_override":`+override+`}`).want(t, 200).at(t, "worker_id")
	}
	for override, want := range map[string]string{
		`{}`: "1", `null`: "1", `{"overlap_score_credit":0}`: "2", `{"overlap_score_weight":0}`: "2", `{"prefill_load_scale":0}`: "2",
		`{"overlap_score_weight":3}`: "1", `{"shared_cache_multiplier":1}`: "1", `{"router_temperature":0}`: "1",
	} {
		if got := pick(override); got != want {
			t.Errorf("%s: worker %s", override, got)
		}
	}
	seen := map[string]bool{}
	for range 64 {
		seen[pick(`{"router_temperature":50}`)] = true
	}
	if len(seen) != 2 {
		t.Error("a temperature of 50 draws from one worker")
	}
	a := w.post(t, "/select_and_reserve", `{`+nine+`,"router_config_override":{"track_prefill_tokens":false},"pinned_worker":{"worker_id":2,"dp_rank":0}}`).want(t, 200)
	if _, prefill, _ := w.active(); a.at(t, "track_prefill_tokens") != "false" || prefill != 2 {
		t.Errorf("%d tokens: %s", prefill, a.body)
	}
	for override, status := range map[string]int{
		`{"bogus":2}`: 400, `{"router_temperature":-1}`: 400, `{"router_temperature":"1"}`: 422, `{"shared_cache_multiplier":1.5}`: 400, `{"overlap_score_credit":1e999}`: 400,
		`{"assume_kv_reuse":1}`: 422, `{"host_cache_hit_weight":1}`: 400, `{"prefill_load_scale":1,"prefill_load_scale":2}`: 400, `7`: 422,
	} {
		if a := w.post(t, "/select", `{"token_ids":[1],"router_config_override":`+override+`}`); a.status != status || !strings.Contains(string(a.body), "router_config_override") {
			t.Errorf("%s: got %d, want %d: %s", override, a.status, status, a.body)
		}
	}
}

func TestOverridesThatTheDecidingPolicyDoesNotTakeAreNamedAsTheCallerDid(t *testing.T) {
	w := newWorld(t, options{spec: policy.Spec{Scorers: []policy.ScorerSpec{{StageSpec: policy.StageSpec{Use: "builtin:least-load"}}}}})
	w.join(t, worker(1))
	a := w.post(t, "/select", `{"token_ids":[1],"router_config_override":{"overlap_score_credit":0.5}}`).want(t, 400)
	if got := a.at(t, "error.details.item"); got != "router_config_override.overlap_score_credit" {
		t.Errorf("item %s: %s", got, a.body)
	}
}
