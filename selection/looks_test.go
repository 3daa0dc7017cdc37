package selection_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/kvcache"
)

// tiers is a world in which worker 1 holds two blocks of 1…12 on its devices and the
// third in its host memory, rank 1 of worker 2 the first, and nobody the fourth.
func tiers(t *testing.T, o options) *world {
	t.Helper()
	w := newWorld(t, o)
	w.join(t, worker(1), worker(2, func(r *fleet.Record) { r.DPSize = 2 }))
	w.cache.store(t, fleet.Worker{ID: 1}, kvcache.Device, 1, 2, 3, 4, 5, 6, 7, 8)
	w.cache.store(t, fleet.Worker{ID: 1}, kvcache.Host, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12)
	w.cache.store(t, fleet.Worker{ID: 2, Rank: 1}, kvcache.Device, 1, 2, 3, 4)
	return w
}

func same(t *testing.T, want string, got answer) {
	t.Helper()
	if diff := cmp.Diff(want, string(got.want(t, 200).body)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestRow_OverlapScoresCountBlocksByTier(t *testing.T) {
	w := tiers(t, options{})
	same(t, `{"block_size":4,"num_blocks":4,"workers":[`+
		`{"worker_id":1,"dp_rank":0,"device_blocks":2,"host_pinned_blocks":3,"disk_blocks":3,"host_pinned_extension_blocks":1,"disk_extension_blocks":0,"shared_beyond_device_blocks":null},`+
		`{"worker_id":2,"dp_rank":0,"device_blocks":0,"host_pinned_blocks":0,"disk_blocks":0,"host_pinned_extension_blocks":0,"disk_extension_blocks":0,"shared_beyond_device_blocks":null},`+
		`{"worker_id":2,"dp_rank":1,"device_blocks":1,"host_pinned_blocks":1,"disk_blocks":1,"host_pinned_extension_blocks":0,"disk_extension_blocks":0,"shared_beyond_device_blocks":null}],`+
		`"shared_cache":{"enabled":false,"total_hit_blocks":0,"ranges":[],"error":null}}`,
		w.post(t, "/overlap_scores", `{"token_ids":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16]}`))
	w.post(t, "/overlap_scores", `{}`).refused(t, 400, "block_hashes is required without token_ids")
	w.post(t, "/overlap_scores", `{"model_name":"nope","token_ids":[1]}`).refused(t, 503, "no schedulable workers for model=nope routing_group=default")
}

// sharing is a shared cache that holds what it is told to, or is off.
type sharing struct {
	ranges []kvcache.BlockRange
	err    error
}

func (s sharing) Hits(_ context.Context, _ fleet.PartitionKey, _ []kvcache.SequenceHash, out []kvcache.BlockRange) ([]kvcache.BlockRange, error) {
	return append(out, s.ranges...), s.err
}

func TestOverlapScoresTellOfTheSharedCache(t *testing.T) {
	const ask = `{"token_ids":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16]}`
	for _, c := range []struct {
		name  string
		cache sharing
		want  string
	}{
		{"it holds some", sharing{ranges: []kvcache.BlockRange{{Start: 1, End: 4}}}, "map[enabled:true error:<nil> ranges:[[1 4]] total_hit_blocks:3]"},
		{"it does not answer", sharing{err: context.DeadlineExceeded}, "map[enabled:true error:the shared cache did not answer ranges:[] total_hit_blocks:0]"},
		{"it is off", sharing{err: core.ErrNoSharedCache}, "map[enabled:false error:<nil> ranges:[] total_hit_blocks:0]"},
	} {
		w := tiers(t, options{host: core.SelectionHost{SharedCache: c.cache}})
		if got := w.post(t, "/overlap_scores", ask).want(t, 200).at(t, "shared_cache"); got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
		on := fmt.Sprint(!errors.Is(c.cache.err, core.ErrNoSharedCache))
		if got := w.post(t, "/overlap_scores", `{"token_ids":[1]}`).want(t, 200).at(t, "shared_cache.enabled"); got != on {
			t.Errorf("%s, of a prompt without a full block: got %s, want %s", c.name, got, on)
		}
	}
}

func TestRow_QueryAnswersFromTheIndexAlone(t *testing.T) {
	w := tiers(t, options{})
	const want = `{"scores":{"1":{"0":8},"2":{"1":4}},"frequencies":[],"instances":{` +
		`"1":{"longest_matched":12,"gpu":8,"dp":{"0":8},"cpu":12,"disk":12},"2":{"longest_matched":4,"gpu":4,"dp":{"1":4},"cpu":4,"disk":4}}}`
	tokens := []uint32{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}
	same(t, want, w.post(t, "/query", `{"token_ids":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16]}`))
	blocks, err := kvcache.BlockHashes(nil, tokens, blockSize, kvcache.Seed("", ""))
	if err != nil {
		t.Fatal(err)
	}
	same(t, want, w.post(t, "/query_by_hash", `{"block_hashes":`+asJSON(t, blocks)+`}`))
	const none = `{"scores":{},"frequencies":[],"instances":{}}`
	same(t, none, w.post(t, "/query", `{"token_ids":[99,98,97,96]}`))
	same(t, none, w.post(t, "/query", `{"token_ids":[]}`))
	same(t, none, w.post(t, "/query", `{"token_ids":[1,2,3,4],"cache_salt":"other"}`))
	w.post(t, "/query", `{"model_name":"nope","token_ids":[1]}`).refused(t, 404, "no index for model=nope routing_group=default")
	w.post(t, "/query", `{}`).refused(t, 422, "token_ids")
	w.post(t, "/query_by_hash", `{"block_hashes":[1],"cache_salt":"x"}`).refused(t, 400, "cache_salt")
	if active, _, _ := w.active(); active != 0 {
		t.Errorf("%d bookings", active)
	}
}

func TestRow_LoadsShowBookingsAndWhatWaits(t *testing.T) {
	w := tiers(t, options{})
	w.post(t, "/reservations", `{"selection_id":"r","worker_id":2,"dp_rank":1,"token_ids":[1,2,3,4,5,6,7,8],"effective_prefill_tokens":4}`).want(t, 201)
	const want = `[{"model_name":"default","routing_group":"default","loads":[` +
		`{"worker_id":1,"dp_rank":0,"potential_prefill_tokens":0,"potential_decode_blocks":0,"active_requests":0},` +
		`{"worker_id":2,"dp_rank":0,"potential_prefill_tokens":0,"potential_decode_blocks":0,"active_requests":0},` +
		`{"worker_id":2,"dp_rank":1,"potential_prefill_tokens":4,"potential_decode_blocks":2,"active_requests":1}],"pending_count":0,"pending_isl_tokens":0}]`
	same(t, want, w.do(t, "GET", "/loads", ""))
	same(t, want, w.do(t, "GET", "/loads?model_name=default&routing_group=", ""))
	same(t, `[]`, w.do(t, "GET", "/loads?model_name=zz", ""))
}

func TestRow_PotentialLoadsAddThePrompt(t *testing.T) {
	w := tiers(t, options{})
	w.post(t, "/reservations", `{"selection_id":"r","worker_id":2,"dp_rank":1,"token_ids":[1,2,3,4,5,6,7,8],"effective_prefill_tokens":4}`).want(t, 201)
	same(t, `[{"worker_id":1,"dp_rank":0,"potential_prefill_tokens":1,"potential_decode_blocks":3,"active_requests":0},`+
		`{"worker_id":2,"dp_rank":0,"potential_prefill_tokens":12,"potential_decode_blocks":3,"active_requests":0},`+
		`{"worker_id":2,"dp_rank":1,"potential_prefill_tokens":12,"potential_decode_blocks":3,"active_requests":1}]`,
		w.post(t, "/potential_loads", `{"token_ids":[1,2,3,4,5,6,7,8,9,10,11,12]}`))
	w.post(t, "/potential_loads", `{}`).refused(t, 400, "block_hashes is required without token_ids")
	w.post(t, "/potential_loads", `{"model_name":"nope","token_ids":[1]}`).refused(t, 503, "no schedulable workers for model=nope routing_group=default")
}

// Workers that are put here list no adapters: for them an adapter is part of the
// hashes and no more. Where a worker lists it, only that one serves it.
func TestLoraNameNarrowsOnlyWhereAnyWorkerListsIt(t *testing.T) {
	w := newWorld(t, options{})
	w.join(t, worker(1), worker(2))
	const ask = `{"token_ids":[1,2,3,4],"lora_name":"ad"}`
	scoped := w.post(t, "/select_and_reserve", ask).want(t, 200).at(t, "sequence_hashes")
	plain := w.post(t, "/select_and_reserve", `{"token_ids":[1,2,3,4]}`).want(t, 200).at(t, "sequence_hashes")
	if scoped == plain {
		t.Errorf("the adapter is not part of the hash %s", plain)
	}
	w.join(t, worker(3, func(r *fleet.Record) { r.Adapters = []fleet.Adapter{{Name: "ad"}} }))
	for range 20 {
		got := w.post(t, "/select_and_reserve", ask).want(t, 200)
		if got.at(t, "worker_id") != "3" || got.at(t, "sequence_hashes") != scoped {
			t.Fatalf("got %s, want worker 3 and %s", got.body, scoped)
		}
	}
}

func TestRow_TheDumpIsTheIndex(t *testing.T) {
	w := newWorld(t, options{})
	same(t, `{}`, w.do(t, "GET", "/dump", ""))
}

func asJSON(t *testing.T, blocks []kvcache.BlockHash) string {
	t.Helper()
	b, err := json.Marshal(blocks)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
