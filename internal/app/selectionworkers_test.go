package app_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/fleet"
)

const (
	post, get, patch, del = http.MethodPost, http.MethodGet, http.MethodPatch, http.MethodDelete

	// whole is a worker that has all that it needs.
	whole = `"endpoint":"http://127.0.0.1:20001","block_size":4,"kv_events_endpoint":"tcp://127.0.0.1:22001"`
)

// The answers are those of Dynamo's service 1.6.1, byte for byte but for the order
// of fields.
func TestRow_WorkersUpsertAnswersTheRecord(t *testing.T) {
	b := newSelectionBench(t)
	for _, c := range []struct{ body, want string }{
		{
			`{"worker_id":1,"endpoint":"http://127.0.0.1:20001","block_size":4,"max_num_batched_tokens":100,"total_kv_blocks":50,"kv_events_endpoint":"tcp://127.0.0.1:22001","taints":["a"],"topology_domains":{"zone":"z"},"stable_routing_id":"s"}`,
			`{"worker_id":1,"model_name":"default","routing_group":"default","lifecycle":"schedulable","endpoint":"http://127.0.0.1:20001","kv_events_endpoint":"tcp://127.0.0.1:22001","replay_endpoint":null,"block_size":4,"data_parallel_start_rank":null,"data_parallel_size":null,"max_num_batched_tokens":100,"total_kv_blocks":50,"stable_routing_id":"s","is_eagle":null,"taints":["a"],"topology_domains":{"zone":"z"},"kv_transfer_domain":null,"kv_transfer_enforcement":null,"kv_transfer_preferred_weight":null}`,
		},
		{
			`{"worker_id":2,"endpoint":"http://127.0.0.1:20002","block_size":4,"data_parallel_size":2,"kv_events_endpoints":{"0":"tcp://127.0.0.1:22002","1":"tcp://127.0.0.1:22003"}}`,
			`{"worker_id":2,"model_name":"default","routing_group":"default","lifecycle":"schedulable","endpoint":"http://127.0.0.1:20002","kv_events_endpoint":null,"kv_events_endpoints":{"1":"tcp://127.0.0.1:22003","0":"tcp://127.0.0.1:22002"},"replay_endpoint":null,"block_size":4,"data_parallel_start_rank":null,"data_parallel_size":2,"max_num_batched_tokens":null,"total_kv_blocks":null,"stable_routing_id":null,"is_eagle":null,"taints":[],"topology_domains":{},"kv_transfer_domain":null,"kv_transfer_enforcement":null,"kv_transfer_preferred_weight":null}`,
		},
		{
			`{"worker_id":3}`,
			`{"worker_id":3,"model_name":"default","routing_group":"default","lifecycle":"incomplete","endpoint":null,"kv_events_endpoint":null,"replay_endpoint":null,"block_size":null,"data_parallel_start_rank":null,"data_parallel_size":null,"max_num_batched_tokens":null,"total_kv_blocks":null,"stable_routing_id":null,"is_eagle":null,"taints":[],"topology_domains":{},"kv_transfer_domain":null,"kv_transfer_enforcement":null,"kv_transfer_preferred_weight":null,"not_schedulable_reasons":["endpoint is required","block_size must be greater than 0","kv_events endpoint is required for dp_rank 0"]}`,
		},
		{
			`{"worker_id":9,"endpoint":"http://h:9","block_size":4,"data_parallel_size":1,"data_parallel_start_rank":0,"is_eagle":false,"kv_events_endpoints":{"0":"tcp://127.0.0.1:22001"},"kv_event_source_mode":"framework_v1","kv_transfer_domain":null}`,
			`{"worker_id":9,"model_name":"default","routing_group":"default","lifecycle":"schedulable","endpoint":"http://h:9","kv_events_endpoint":null,"kv_events_endpoints":{"0":"tcp://127.0.0.1:22001"},"replay_endpoint":null,"block_size":4,"data_parallel_start_rank":0,"data_parallel_size":1,"max_num_batched_tokens":null,"total_kv_blocks":null,"stable_routing_id":null,"is_eagle":false,"taints":[],"topology_domains":{},"kv_transfer_domain":null,"kv_transfer_enforcement":null,"kv_transfer_preferred_weight":null,"kv_event_source_mode":"framework_v1"}`,
		},
		{
			`{"worker_id":10,"endpoint":"","block_size":0,"max_num_batched_tokens":0,"total_kv_blocks":0,"stable_routing_id":"","taints":["b","a","a"],"kv_events_endpoints":{}}`,
			`{"worker_id":10,"model_name":"default","routing_group":"default","lifecycle":"incomplete","endpoint":"","kv_events_endpoint":null,"replay_endpoint":null,"block_size":0,"data_parallel_start_rank":null,"data_parallel_size":null,"max_num_batched_tokens":0,"total_kv_blocks":0,"stable_routing_id":"","is_eagle":null,"taints":["a","b"],"topology_domains":{},"kv_transfer_domain":null,"kv_transfer_enforcement":null,"kv_transfer_preferred_weight":null,"not_schedulable_reasons":["endpoint is required","block_size must be greater than 0","kv_events endpoint is required for dp_rank 0"]}`,
		},
	} {
		status, got := b.raw(t, post, "/workers", c.body)
		if diff := cmp.Diff(decoded(t, c.want), decoded(t, string(got))); diff != "" || status != http.StatusCreated {
			t.Errorf("%s: %d (-want +got)\n%s", c.body, status, diff)
		}
	}
}

func decoded(t *testing.T, text string) (v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return v
}

func TestRow_UpsertWithOtherTaintsOnlyKeepsBookingsAndListener(t *testing.T) {
	b := newSelectionBench(t)
	b.want(t, 201, post, "/workers", `{"worker_id":1,`+whole+`,"taints":["a"]}`)
	b.engines.since()
	b.want(t, 200, post, "/select_and_reserve", `{"selection_id":"r","token_ids":[1,2,3,4]}`)
	b.want(t, 201, post, "/workers", `{"worker_id":1,`+whole+`,"taints":["b"]}`)
	b.want(t, 200, patch, "/workers/1", `{"taints":["c"]}`)
	if diff := cmp.Diff([]string{}, b.engines.since()); diff != "" {
		t.Errorf("listeners: %s", diff)
	}
	b.want(t, 200, del, "/reservations/r", "")
}

func TestRow_UpsertWithFewerFieldsClearsThemAndTheWorkerLeaves(t *testing.T) {
	b := newSelectionBench(t)
	b.want(t, 201, post, "/workers", `{"worker_id":1,`+whole+`,"taints":["a"],"stable_routing_id":"s"}`)
	b.want(t, 200, post, "/select", `{"token_ids":[1]}`)
	b.engines.since()
	v := b.want(t, 201, post, "/workers", `{"worker_id":1,"endpoint":"http://127.0.0.1:20001"}`)
	wantFields(t, v, map[string]any{
		"lifecycle": "incomplete", "taints": texts(), "stable_routing_id": nil, "block_size": nil,
		"not_schedulable_reasons": texts("block_size must be greater than 0", "kv_events endpoint is required for dp_rank 0"),
	})
	b.want(t, 503, post, "/select", `{"token_ids":[1]}`)
	if diff := cmp.Diff([]string{"unlisten 1/0"}, b.engines.since()); diff != "" {
		t.Error(diff)
	}
}

func TestAnEngineThatConnectsIsTakenByItsEventsAlone(t *testing.T) {
	b := newSelectionBench(t)
	v := b.want(t, 201, post, "/workers", `{"worker_id":1,"endpoint":"http://127.0.0.1:20001","block_size":4,"kv_events_endpoint":"tcp://*:22001"}`)
	wantFields(t, v, map[string]any{"lifecycle": "schedulable", "kv_events_endpoint": "tcp://*:22001"})
	b.want(t, 201, post, "/workers", `{"worker_id":2,"endpoint":"http://127.0.0.1:20002","block_size":4,"kv_events_endpoints":{"0":"tcp://*:22001"}}`)
	v = b.want(t, 400, post, "/workers", `{"worker_id":3,"endpoint":"http://127.0.0.1:20003","block_size":4,"replay_endpoint":"tcp://*:22001"}`)
	if text := fmt.Sprint(v); !strings.Contains(text, `replay_endpoint: "tcp://*:22001" is not allowed`) {
		t.Errorf("got %s", text)
	}
}

func TestRow_UpsertWithADifferentBlockSizeIsIncomplete(t *testing.T) {
	b := newSelectionBench(t)
	b.want(t, 201, post, "/workers", `{"worker_id":1,`+whole+`}`)
	v := b.want(t, 201, post, "/workers", `{"worker_id":5,"endpoint":"http://h","block_size":8,"kv_events_endpoint":"tcp://127.0.0.1:22019"}`)
	wantFields(t, v, map[string]any{
		"lifecycle": "incomplete", "endpoint": "http://h", "block_size": json.Number("8"),
		"not_schedulable_reasons": texts("reconciliation failed: block_size mismatch for model=default routing_group=default: existing=4 requested=8"),
	})
	v = b.want(t, 201, post, "/workers", `{"worker_id":7,"endpoint":"http://i","is_eagle":true,"block_size":4,"kv_events_endpoint":"tcp://127.0.0.1:22029"}`)
	wantFields(t, v, map[string]any{
		"lifecycle":               "incomplete",
		"not_schedulable_reasons": texts("reconciliation failed: is_eagle mismatch for model=default routing_group=default: existing=false requested=true"),
	})
	wantFields(t, b.want(t, 200, patch, "/workers/7", `{"is_eagle":false}`), map[string]any{"lifecycle": "schedulable"})
}

func TestRow_DataParallelSize2WithOnlyKvEventsEndpointLacksEachRank(t *testing.T) {
	b := newSelectionBench(t)
	v := b.want(t, 201, post, "/workers", `{"worker_id":4,"endpoint":"http://h","block_size":4,"data_parallel_size":2,"kv_events_endpoint":"tcp://127.0.0.1:22009"}`)
	wantFields(t, v, map[string]any{
		"lifecycle": "incomplete", "kv_events_endpoint": "tcp://127.0.0.1:22009",
		"not_schedulable_reasons": texts("kv_events endpoint is required for dp_rank 0", "kv_events endpoint is required for dp_rank 1"),
	})
	v = b.want(t, 201, post, "/workers", `{"worker_id":4,"endpoint":"http://h","block_size":4,"data_parallel_start_rank":3,"data_parallel_size":2,"kv_events_endpoint":"tcp://127.0.0.1:1","kv_events_endpoints":{"3":"tcp://127.0.0.1:22006"}}`)
	wantFields(t, v, map[string]any{"not_schedulable_reasons": texts("kv_events endpoint is required for dp_rank 4")})
	v = b.want(t, 201, post, "/workers", `{"worker_id":8,"endpoint":"http://i","block_size":4,"data_parallel_size":0,"kv_events_endpoint":"tcp://127.0.0.1:1"}`)
	wantFields(t, v, map[string]any{"data_parallel_size": json.Number("0"), "not_schedulable_reasons": texts("data_parallel_size must be greater than 0")})
	v = b.want(t, 201, post, "/workers", `{"worker_id":9,"endpoint":"http://j","block_size":4,"data_parallel_size":2,"replay_endpoint":"tcp://127.0.0.1:1","kv_events_endpoints":{"0":"tcp://127.0.0.1:2","1":"tcp://127.0.0.1:3"}}`)
	wantFields(t, v, map[string]any{
		"lifecycle": "incomplete", "replay_endpoint": "tcp://127.0.0.1:1",
		"not_schedulable_reasons": texts("replay_endpoint is supported only for data_parallel_size 1"),
	})
}

func TestRow_WorkersWithWrongTypes(t *testing.T) {
	b := newSelectionBench(t)
	for _, c := range []struct {
		status     int
		item, body string
	}{
		{400, "worker_id", `{"worker_id":"seven","endpoint":"http://h"}`},
		{422, "worker_id", `{"endpoint":"http://h"}`},
		{422, "worker_id", `{"worker_id":null}`},
		{400, "worker_id", `{"worker_id":18446744073709551616}`},
		{400, "worker_id", `{"worker_id":-1}`},
		{400, "worker_id", `{"worker_id":1.0}`},
		{422, "block_size", `{"worker_id":1,"block_size":"4"}`},
		{400, "block_size", `{"worker_id":1,"block_size":-4}`},
		{422, "block_size", `{"worker_id":1,"block_size":4.0}`},
		{400, "block_size", `{"worker_id":1,"block_size":4294967296}`},
		{422, "taints", `{"worker_id":1,"taints":{}}`},
		{422, "is_eagle", `{"worker_id":1,"is_eagle":1}`},
		{400, "kv_events_endpoints.x", `{"worker_id":1,"kv_events_endpoints":{"x":"tcp://127.0.0.1:1"}}`},
		{422, "taints", `{"worker_id":1,"taints":null}`},
		{422, "taints[0]", `{"worker_id":1,"taints":[null]}`},
		{422, "kv_events_endpoints", `{"worker_id":1,"kv_events_endpoints":null}`},
		{422, "kv_events_endpoints.0", `{"worker_id":1,"kv_events_endpoints":{"0":null}}`},
		{422, "topology_domains", `{"worker_id":1,"topology_domains":null}`},
		{422, "topology_domains.zone", `{"worker_id":1,"topology_domains":{"zone":null}}`},
		{422, "model_name", `{"worker_id":1,"model_name":null}`},
		{422, "routing_group", `{"worker_id":1,"routing_group":null}`},
		{422, "router_hint_source_control_endpoints", `{"worker_id":1,"router_hint_source_control_endpoints":null}`},
		{422, "body", `[]`},
		{400, "body", `{`},
		{400, "body", ``},
		{400, "blocksize", `{"worker_id":1,"blocksize":4}`},
		{400, "block_size", `{"worker_id":1,"block_size":4,"block_size":8}`},
		{400, "block_size", `{"worker_id":1,"block_size":2000000}`},
		{400, "data_parallel_size", `{"worker_id":1,"data_parallel_size":4097}`},
		{400, "data_parallel_start_rank", `{"worker_id":1,"data_parallel_start_rank":5000}`},
		{400, "total_kv_blocks", `{"worker_id":1,"total_kv_blocks":18446744073709551615}`},
		{400, "max_num_batched_tokens", `{"worker_id":1,"max_num_batched_tokens":1073741825}`},
		{400, "endpoint", `{"worker_id":1,"endpoint":"not a url"}`},
		{400, "kv_events_endpoint", `{"worker_id":1,"kv_events_endpoint":"nope"}`},
		{400, "kv_events_endpoints.7", `{"worker_id":1,"kv_events_endpoints":{"7":"nope"}}`},
		{400, "replay_endpoint", `{"worker_id":1,"replay_endpoint":"nope"}`},
		{400, "model_name", `{"worker_id":1,"model_name":"` + strings.Repeat("m", 257) + `"}`},
		{400, "kv_transfer_domain", `{"worker_id":1,"kv_transfer_domain":"d"}`},
		{400, "kv_transfer_enforcement", `{"worker_id":1,"kv_transfer_enforcement":"required"}`},
		{400, "kv_transfer_preferred_weight", `{"worker_id":1,"kv_transfer_preferred_weight":1}`},
		{400, "router_hint_worker_type", `{"worker_id":1,"router_hint_worker_type":"decode"}`},
		{400, "router_hint_source_control_endpoints", `{"worker_id":1,"router_hint_source_control_endpoints":{"0":"tcp://h:1"}}`},
		{400, "kv_event_source_mode", `{"worker_id":1,"kv_event_source_mode":"state_agent_v2"}`},
	} {
		failure, _ := b.want(t, c.status, post, "/workers", c.body)["error"].(map[string]any)
		details, _ := failure["details"].(map[string]any)
		if details["item"] != c.item {
			t.Errorf("POST /workers %s: %v does not name %q alone", c.body, failure, c.item)
		}
	}
	if _, text := b.raw(t, get, "/workers", ""); string(text) != "[]" {
		t.Errorf("refused workers are there: %s", text)
	}
	v := b.want(t, 400, post, "/workers", `{"worker_id":1,"kv_event_source_mode":"xx"}`)
	wantFields(t, v["error"].(map[string]any), map[string]any{"code": "unsupported"})
}

func TestRow_WorkerIDsMayBeTextsOfDigits(t *testing.T) {
	b := newSelectionBench(t)
	v := b.want(t, 201, post, "/workers", `{"worker_id":"7",`+whole+`}`)
	wantFields(t, v, map[string]any{"worker_id": json.Number("7"), "lifecycle": "schedulable"})
}

func TestRow_WorkersOfTheLargestId(t *testing.T) {
	b := newSelectionBench(t)
	const largest = "18446744073709551615"
	for i, id := range []string{largest, "0", "9007199254740993"} {
		body := fmt.Sprintf(`{"worker_id":%s,"endpoint":"http://h:%d","block_size":4,"kv_events_endpoint":"tcp://127.0.0.1:22013"}`, id, i+1)
		want := map[string]any{"worker_id": json.Number(id), "lifecycle": "schedulable"}
		wantFields(t, b.want(t, 201, post, "/workers", body), want)
		pinned := fmt.Sprintf(`{"token_ids":[1,2],"pinned_worker":{"worker_id":%s,"dp_rank":0}}`, id)
		wantFields(t, b.want(t, 200, post, "/select", pinned), map[string]any{"worker_id": json.Number(id)})
		wantFields(t, b.want(t, 200, patch, "/workers/"+id, `{}`), want)
		wantFields(t, b.want(t, 200, del, "/workers/"+id, ""), map[string]any{"worker_id": json.Number(id), "lifecycle": "unschedulable"})
	}
}

// Only who is unknown is a pin that is not found.
func TestRow_APinToAnIncompleteWorkerFindsNobody(t *testing.T) {
	b := newSelectionBench(t)
	const explicit = `{"selection_id":"x","worker_id":3,"token_ids":[1]}`
	b.want(t, 503, post, "/reservations", explicit)
	b.want(t, 201, post, "/workers", `{"worker_id":1,`+whole+`}`)
	b.want(t, 201, post, "/workers", `{"worker_id":3}`)
	v := b.want(t, 503, post, "/select", `{"token_ids":[1],"pinned_worker":{"worker_id":3,"dp_rank":0}}`)
	const want = "pinned worker 3 is not schedulable: endpoint is required, block_size must be greater than 0, kv_events endpoint is required for dp_rank 0"
	wantFields(t, v["error"].(map[string]any), map[string]any{"code": "unavailable", "message": want})
	b.want(t, 404, post, "/select", `{"token_ids":[1],"pinned_worker":{"worker_id":4,"dp_rank":0}}`)
	b.want(t, 404, post, "/select", `{"token_ids":[1],"pinned_worker":{"worker_id":1,"dp_rank":1}}`)
	b.want(t, 404, post, "/reservations", explicit)
	b.want(t, 200, "DELETE", "/workers/1", "")
	b.want(t, 503, post, "/reservations", explicit)
}

func TestRow_WorkersPatchCannotUnset(t *testing.T) {
	b := newSelectionBench(t)
	b.want(t, 201, post, "/workers", `{"worker_id":1,`+whole+`,"taints":["a"],"topology_domains":{"zone":"z"},"stable_routing_id":"s","model_name":"m","routing_group":"g"}`)
	want := map[string]any{
		"lifecycle": "schedulable", "endpoint": "http://127.0.0.1:20001", "taints": texts("a"), "stable_routing_id": "s",
		"topology_domains": map[string]any{"zone": "z"}, "model_name": "m", "routing_group": "g", "max_num_batched_tokens": json.Number("7"),
	}
	wantFields(t, b.want(t, 200, patch, "/workers/1", `{"endpoint":null,"max_num_batched_tokens":7,"taints":null,"kv_transfer_domain":null}`), want)
	wantFields(t, b.want(t, 200, patch, "/workers/1", `{}`), want)
	want["taints"], want["topology_domains"], want["stable_routing_id"] = texts(), map[string]any{}, ""
	wantFields(t, b.want(t, 200, patch, "/workers/1", `{"taints":[],"topology_domains":{},"stable_routing_id":""}`), want)
	b.refused(t, 404, "worker 99", patch, "/workers/99", `{"taints":["b"]}`)
	b.refused(t, 400, "bogus", patch, "/workers/1", `{"bogus":1}`)
	b.refused(t, 400, "worker_id", patch, "/workers/1", `{"worker_id":5}`)
	b.refused(t, 400, "model_name", patch, "/workers/1", `{"model_name":"other"}`)
	b.refused(t, 422, "block_size", patch, "/workers/1", `{"block_size":"x"}`)
	b.refused(t, 400, "kv_transfer_domain", patch, "/workers/1", `{"kv_transfer_domain":"d"}`)
	b.refused(t, 400, "body", patch, "/workers/1", ``)
	b.refused(t, 400, "abc", patch, "/workers/abc", `{}`)
	wantFields(t, b.want(t, 200, patch, "/workers/1", `{}`), want)
}

func TestRow_UpsertWithAnotherModelMovesTheWorker(t *testing.T) {
	b := newSelectionBench(t)
	b.want(t, 201, post, "/workers", `{"worker_id":1,`+whole+`}`)
	b.want(t, 201, post, "/workers", `{"worker_id":1,"model_name":"m",`+whole+`}`)
	b.want(t, 200, post, "/select", `{"model_name":"m","token_ids":[1]}`)
	b.want(t, 503, post, "/select", `{"token_ids":[1]}`)
	want := []string{"listen 1/0 tcp://127.0.0.1:22001 ", "listen 1/0 tcp://127.0.0.1:22001 ", "unlisten 1/0"}
	if diff := cmp.Diff(want, b.engines.since()); diff != "" {
		t.Error(diff)
	}
}

func TestRow_ReservationsOfADeletedWorkerAreGone(t *testing.T) {
	b := newSelectionBench(t)
	b.want(t, 201, post, "/workers", `{"worker_id":1,`+whole+`,"data_parallel_size":null}`)
	b.want(t, 200, post, "/select_and_reserve", `{"selection_id":"r","token_ids":[1,2,3,4]}`)
	b.want(t, 200, del, "/workers/1", "")
	b.refused(t, 404, "r", del, "/reservations/r", "")
	b.want(t, 503, post, "/select", `{"token_ids":[1]}`)
	b.want(t, 201, post, "/workers", `{"worker_id":1,`+whole+`}`)
	b.want(t, 200, post, "/select", `{"token_ids":[1]}`)
}

func TestRow_WorkersPatchOfRanks(t *testing.T) {
	b := newSelectionBench(t)
	b.want(t, 201, post, "/workers", `{"worker_id":1,"endpoint":"http://h:1","block_size":4,"kv_events_endpoints":{"0":"tcp://127.0.0.1:22001"}}`)
	v := b.want(t, 200, patch, "/workers/1", `{"data_parallel_size":2}`)
	wantFields(t, v, map[string]any{"lifecycle": "incomplete", "not_schedulable_reasons": texts("kv_events endpoint is required for dp_rank 1")})
	b.engines.since()
	b.want(t, 200, patch, "/workers/1", `{"kv_events_endpoints":{"0":"tcp://127.0.0.1:22001","1":"tcp://127.0.0.1:22031"}}`)
	v = b.want(t, 200, patch, "/workers/1", `{"data_parallel_size":1}`)
	wantFields(t, v, map[string]any{"lifecycle": "schedulable", "kv_events_endpoints": map[string]any{"0": "tcp://127.0.0.1:22001", "1": "tcp://127.0.0.1:22031"}})
	want := []string{"listen 1/0 tcp://127.0.0.1:22001 ", "listen 1/1 tcp://127.0.0.1:22031 ", "unlisten 1/1"}
	if diff := cmp.Diff(want, b.engines.since()); diff != "" {
		t.Error(diff)
	}
}

func TestRow_WorkersDelete(t *testing.T) {
	b := newSelectionBench(t)
	b.want(t, 201, post, "/workers", `{"worker_id":3}`)
	v := b.want(t, 200, del, "/workers/3", "")
	wantFields(t, v, map[string]any{"worker_id": json.Number("3"), "lifecycle": "unschedulable", "endpoint": nil})
	if _, ok := v["not_schedulable_reasons"]; ok {
		t.Errorf("reasons of a worker that is gone: %v", v)
	}
	b.refused(t, 404, "worker 3 not found", del, "/workers/3", "")
	b.refused(t, 400, "abc", del, "/workers/abc", "")
	b.refused(t, 400, "18446744073709551616", del, "/workers/18446744073709551616", "")
}

func TestRow_WorkersListByModelAndGroup(t *testing.T) {
	b := newSelectionBench(t)
	b.want(t, 201, post, "/workers", `{"worker_id":2,"model_name":"m"}`)
	b.want(t, 201, post, "/workers", `{"worker_id":1,"routing_group":"g"}`)
	b.want(t, 201, post, "/workers", `{"worker_id":3}`)
	for query, want := range map[string][]int{
		"": {1, 2, 3}, "?model_name=m": {2}, "?model_name=default": {1, 3}, "?routing_group=g": {1},
		"?model_name=m&routing_group=g": {}, "?model_name=x": {}, "?model_name=": {1, 3},
	} {
		status, text := b.raw(t, get, "/workers"+query, "")
		var all []struct {
			ID int `json:"worker_id"`
		}
		if err := json.Unmarshal(text, &all); err != nil || status != 200 {
			t.Fatalf("%s: %d %s", query, status, text)
		}
		got := []int{}
		for _, w := range all {
			got = append(got, w.ID)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", query, diff)
		}
	}
}

func TestRow_ReadyWhileAnyWorkerIsSchedulable(t *testing.T) {
	b := newSelectionBench(t)
	status, text := b.raw(t, get, "/ready", "")
	if string(text) != `{"ready":false,"schedulable_workers":0,"workers":[]}` || status != 503 {
		t.Errorf("%d %s", status, text)
	}
	b.want(t, 201, post, "/workers", `{"worker_id":3}`)
	if v := b.want(t, 503, get, "/ready", ""); len(v["workers"].([]any)) != 1 {
		t.Errorf("the incomplete worker is not listed: %v", v)
	}
	b.want(t, 201, post, "/workers", `{"worker_id":1,`+whole+`}`)
	v := b.want(t, 200, get, "/ready", "")
	wantFields(t, v, map[string]any{"ready": true, "schedulable_workers": json.Number("1")})
	if n := len(v["workers"].([]any)); n != 2 {
		t.Errorf("%d workers", n)
	}
}

func TestAWorkerWithoutABlockSizeHasItsEngineAsked(t *testing.T) {
	b := newSelectionBench(t)
	b.engines.sizes["http://h:1"] = 4
	v := b.want(t, 201, post, "/workers", `{"worker_id":1,"endpoint":"http://h:1","kv_events_endpoint":"tcp://127.0.0.1:1"}`)
	wantFields(t, v, map[string]any{"lifecycle": "schedulable", "block_size": nil})
	v = b.want(t, 201, post, "/workers", `{"worker_id":2,"endpoint":"http://h:2","kv_events_endpoint":"tcp://127.0.0.1:1"}`)
	wantFields(t, v, map[string]any{"lifecycle": "incomplete", "not_schedulable_reasons": texts("block_size must be greater than 0")})
}

func TestWorkersOfOtherSourcesAreListedAndNotChanged(t *testing.T) {
	b := newSelectionBench(t)
	rec, err := fleet.Record{ID: 1, Name: "w1", URL: "http://127.0.0.1:1", Model: "default", BlockSize: 4, DPSize: 2, KVEvents: map[int]string{1: "tcp://127.0.0.1:1"}}.Normalised()
	if err != nil {
		t.Fatal(err)
	}
	if err := b.reconciler.Apply(t.Context(), "file", []fleet.Record{rec}); err != nil {
		t.Fatal(err)
	}
	v := b.want(t, 200, get, "/ready", "")["workers"].([]any)[0].(map[string]any)
	wantFields(t, v, map[string]any{
		"lifecycle": "schedulable", "endpoint": "http://127.0.0.1:1", "data_parallel_size": json.Number("2"),
		"kv_events_endpoint": nil, "kv_events_endpoints": map[string]any{"1": "tcp://127.0.0.1:1"}, "total_kv_blocks": nil,
	})
	b.refused(t, 409, "file", patch, "/workers/1", `{"taints":["a"]}`)
	b.refused(t, 409, "file", del, "/workers/1", "")
	b.refused(t, 409, "file", post, "/workers", `{"worker_id":1,`+whole+`}`)
	b.refused(t, 409, "endpoint", post, "/workers", `{"worker_id":2,"endpoint":"http://127.0.0.1:1"}`)
}

func TestAWorkerOfTheAdminAPIKeepsWhatTheServiceHasNoWordFor(t *testing.T) {
	b := newSelectionBench(t)
	put := fleet.Record{
		ID: 1, Name: "w1", URL: "http://127.0.0.1:1", BlockSize: 4, DPSize: 2, Engine: "sglang", Labels: map[string]string{"a": "b"},
		KVEvents: map[int]string{0: "tcp://127.0.0.1:1", 1: "tcp://127.0.0.1:2"}, Replay: map[int]string{0: "tcp://127.0.0.1:3", 1: "tcp://127.0.0.1:4"},
	}
	if _, _, err := b.source.Put(t.Context(), put); err != nil {
		t.Fatal(err)
	}
	b.want(t, 200, patch, "/workers/1", `{"taints":["x"],"total_kv_blocks":5}`)
	want, err := put.Normalised()
	if err != nil {
		t.Fatal(err)
	}
	want.Taints, want.TotalKVBlocks = []string{"x"}, 5
	got, _ := b.reconciler.Worker("w1")
	if diff := cmp.Diff(want, got.Record); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	b.refused(t, 400, "data_parallel_size", patch, "/workers/1", `{"data_parallel_size":0}`)
	b.want(t, 200, del, "/workers/1", "")
}

// What a worker of the admin API leaves for its engine to tell stays so.
func TestAChangeLeavesUnsaidWhatTheEngineTells(t *testing.T) {
	b := newSelectionBench(t)
	put := fleet.Record{ID: 1, Name: "w1", URL: "http://127.0.0.1:1", BlockSize: 4, Model: "default", KVEvents: map[int]string{0: "tcp://127.0.0.1:1", 1: "tcp://127.0.0.1:2"}}
	if _, _, err := b.source.Put(t.Context(), put); err != nil {
		t.Fatal(err)
	}
	b.want(t, 200, patch, "/workers/1", `{"taints":["x"]}`)
	list, err := b.source.List(t.Context())
	if err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	want, err := put.Normalised()
	if err != nil {
		t.Fatal(err)
	}
	want.Taints = []string{"x"}
	if diff := cmp.Diff(want, list[0]); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestPatchesAtOnceLoseNothing(t *testing.T) {
	b := newSelectionBench(t)
	b.want(t, 201, post, "/workers", `{"worker_id":1,`+whole+`}`)
	fields := []string{`"max_num_batched_tokens":7`, `"total_kv_blocks":9`, `"taints":["a"]`, `"stable_routing_id":"s"`, `"topology_domains":{"zone":"z"}`, `"is_eagle":false`}
	var all sync.WaitGroup
	for _, f := range fields {
		all.Go(func() { b.want(t, 200, patch, "/workers/1", "{"+f+"}") })
	}
	all.Wait()
	wantFields(t, b.want(t, 200, patch, "/workers/1", "{}"), map[string]any{
		"max_num_batched_tokens": json.Number("7"), "total_kv_blocks": json.Number("9"), "taints": texts("a"),
		"stable_routing_id": "s", "topology_domains": map[string]any{"zone": "z"}, "is_eagle": false, "lifecycle": "schedulable",
	})
}
