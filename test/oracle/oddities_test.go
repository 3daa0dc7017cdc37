//go:build oracle

package oracle_test

import (
	"net/http"
	"strings"
)

// oddity is a request that is out of the ordinary. Without statuses both are to
// answer the same one; with them each is to answer its own: a deliberate difference
// by its name.
type oddity struct {
	name         string
	method, path string
	worker       bool // the path ends with a worker of the fleet
	scoped       bool // the body gets the fleet's model and group
	body         any
	tail         string // is sent after the body
	theirs, ours int
}

type object = map[string]any

var ids = []int{1, 2, 3, 4}

// oddities is the whole table.
var oddities = []oddity{
	// The same in both.
	{name: "no prompt", method: http.MethodPost, path: "/select", scoped: true, body: object{}},
	{name: "an empty prompt", method: http.MethodPost, path: "/select", scoped: true, body: object{"token_ids": []int{}}},
	{name: "unknown model", method: http.MethodPost, path: "/select", body: object{"model_name": "nope", "token_ids": ids}},
	{name: "unknown model, overlaps", method: http.MethodPost, path: "/overlap_scores", body: object{"model_name": "nope", "token_ids": ids}},
	{name: "unknown model, loads", method: http.MethodPost, path: "/potential_loads", body: object{"model_name": "nope", "token_ids": ids}},
	{name: "loads of an unknown model", method: http.MethodGet, path: "/loads?model_name=nope"},
	{name: "broken JSON", method: http.MethodPost, path: "/select", body: []byte("{")},
	{name: "a list as the body", method: http.MethodPost, path: "/select", body: []byte("[]")},
	{name: "an empty body", method: http.MethodPost, path: "/select", body: []byte("")},
	{name: "token_ids of another type", method: http.MethodPost, path: "/select", scoped: true, body: object{"token_ids": "x"}},
	{name: "a pin without its rank", method: http.MethodPost, path: "/select", scoped: true, body: object{"token_ids": ids, "pinned_worker": object{"worker_id": 1}}},
	{name: "an unknown allowed worker", method: http.MethodPost, path: "/select", scoped: true, body: object{"token_ids": ids, "allowed_worker_ids": []int{7_000_000_000}}},
	{name: "nobody is allowed", method: http.MethodPost, path: "/select", scoped: true, body: object{"token_ids": ids, "allowed_worker_ids": []int{}}},
	{name: "an unknown affinity target", method: http.MethodPost, path: "/select", scoped: true, body: object{"token_ids": ids, "affinity_target": object{"worker_id": 7_000_000_000}}},
	{name: "an unknown pin that is not allowed", method: http.MethodPost, path: "/select", scoped: true, body: object{"token_ids": ids, "pinned_worker": object{"worker_id": 7_000_000_000, "dp_rank": 0}, "allowed_worker_ids": []int{1}}},
	{name: "taints of null", method: http.MethodPost, path: "/workers", body: object{"worker_id": 7, "taints": nil}},
	{name: "kv_events_endpoints of null", method: http.MethodPost, path: "/workers", body: object{"worker_id": 7, "kv_events_endpoints": nil}},
	{name: "an endpoint of null", method: http.MethodPost, path: "/workers", body: object{"worker_id": 7, "kv_events_endpoints": object{"0": nil}}},
	{name: "topology_domains of null", method: http.MethodPost, path: "/workers", body: object{"worker_id": 7, "topology_domains": nil}},
	{name: "a model of null", method: http.MethodPost, path: "/workers", body: object{"worker_id": 7, "model_name": nil}},
	{name: "routing_constraints of null", method: http.MethodPost, path: "/select", scoped: true, body: object{"token_ids": ids, "routing_constraints": nil}},
	{name: "a reservation on an unknown worker", method: http.MethodPost, path: "/reservations", scoped: true, body: object{"selection_id": "odd", "worker_id": 7_000_000_000, "token_ids": ids}},
	{name: "hashes without a length", method: http.MethodPost, path: "/select", scoped: true, body: object{"block_hashes": []int{1}, "sequence_hashes": []int{1}}},
	{name: "hashes of unequal number", method: http.MethodPost, path: "/select", scoped: true, body: object{"block_hashes": []int{1, 2}, "sequence_hashes": []int{1}, "isl_tokens": 8}},
	{name: "an unknown input_trigger", method: http.MethodPost, path: "/select", scoped: true, body: object{"token_ids": ids, "session_context": object{"session_id": "s", "input_trigger": "bad"}}},
	{name: "a session id of 300 bytes", method: http.MethodPost, path: "/select_and_reserve", scoped: true, body: object{"token_ids": ids, "session_id": strings.Repeat("x", 300)}},
	{name: "a worker without an id", method: http.MethodPost, path: "/workers", body: object{"endpoint": "http://h"}},
	{name: "an unknown worker is changed", method: http.MethodPatch, path: "/workers/7000000000", body: object{"taints": []string{"b"}}},
	{name: "an unknown worker is deleted", method: http.MethodDelete, path: "/workers/7000000000"},
	{name: "a worker id that is none", method: http.MethodDelete, path: "/workers/abc"},
	{name: "a reservation without an id", method: http.MethodPost, path: "/reservations", scoped: true, body: object{"worker_id": 1, "token_ids": ids}},
	{name: "a reservation that was never selected", method: http.MethodPost, path: "/reservations", scoped: true, body: object{"selection_id": "never"}},
	{name: "output_block with an empty body", method: http.MethodPost, path: "/reservations/nobody/output_block", body: []byte("")},
	{name: "decay_fraction 2", method: http.MethodPost, path: "/reservations/nobody/output_block", body: object{"decay_fraction": 2}},
	{name: "no worker is changed", method: http.MethodPatch, path: "/workers/", body: object{"taints": []string{"b"}}},
	{name: "no worker is deleted", method: http.MethodDelete, path: "/workers/"},
	{name: "no worker is asked for", method: http.MethodGet, path: "/workers/"},
	{name: "no reservation is freed", method: http.MethodDelete, path: "/reservations/"},
	{name: "no reservation is told of", method: http.MethodPost, path: "/reservations//prefill_complete"},
	{name: "half a surrogate", method: http.MethodPost, path: "/select", body: []byte(`{"token_ids":[1],"cache_salt":"\ud800"}`)},
	{name: "a text that is no UTF-8", method: http.MethodPost, path: "/select", body: []byte("{\"token_ids\":[1],\"session_id\":\"\xff\"}")},
	{name: "a taint that is no UTF-8", method: http.MethodPost, path: "/workers", body: []byte("{\"worker_id\":7,\"taints\":[\"\xff\"]}")},
	{name: "another method", method: http.MethodGet, path: "/select"},
	{name: "another path", method: http.MethodGet, path: "/nope"},

	{name: "replica_sync/register_peer", method: http.MethodPost, path: "/replica_sync/register_peer", body: object{"endpoint": "tcp://x:1"}},
	{name: "replica_sync/deregister_peer", method: http.MethodPost, path: "/replica_sync/deregister_peer", body: object{"endpoint": "tcp://x:1"}},

	// Deliberate differences.
	{name: "replica_sync is disabled", method: http.MethodGet, path: "/replica_sync/peers", theirs: 200, ours: 409},
	{name: "an unknown field is refused: select", method: http.MethodPost, path: "/select", scoped: true, body: object{"token_ids": ids, "bogus": 1}, theirs: 200, ours: 400},
	{name: "an unknown field is refused: workers", method: http.MethodPatch, path: "/workers/", worker: true, body: object{"bogus": 1}, theirs: 200, ours: 400},
	{name: "an unknown field is refused: potential_loads", method: http.MethodPost, path: "/potential_loads", scoped: true, body: object{"token_ids": ids, "bogus": 1}, theirs: 200, ours: 400},
	{name: "an unknown field is refused: advisory of a booking", method: http.MethodPost, path: "/select_and_reserve", scoped: true, body: object{"token_ids": ids, "advisory": nil, "allowed_worker_ids": []int{}}, theirs: 503, ours: 400},
	{name: "an unknown override is refused", method: http.MethodPost, path: "/select", scoped: true, body: object{"token_ids": ids, "router_config_override": object{"bogus": 1}}, theirs: 200, ours: 400},
	{name: "out of range is 400: router_temperature", method: http.MethodPost, path: "/select", scoped: true, body: object{"token_ids": ids, "router_config_override": object{"router_temperature": -1}}, theirs: 422, ours: 400},
	{name: "out of range is 400: strict_priority", method: http.MethodPost, path: "/select", scoped: true, body: object{"token_ids": ids, "strict_priority": -1}, theirs: 422, ours: 400},
	{name: "out of range is 400: expected_output_tokens", method: http.MethodPost, path: "/select", scoped: true, body: object{"token_ids": ids, "expected_output_tokens": -1}, theirs: 422, ours: 400},
	{name: "out of range is 400: token_ids", method: http.MethodPost, path: "/select", scoped: true, body: []byte(`{"token_ids":[1,-3]}`), theirs: 422, ours: 400},
	{name: "out of range is 400: block_size", method: http.MethodPost, path: "/workers", body: object{"worker_id": 7, "block_size": -4}, theirs: 422, ours: 400},
	{name: "out of range is 400: worker_id", method: http.MethodPost, path: "/workers", body: object{"worker_id": "seven"}, theirs: 422, ours: 400},
	{name: "a negative priority_jump is refused", method: http.MethodPost, path: "/select", scoped: true, body: object{"token_ids": ids, "priority_jump": -1}, theirs: 200, ours: 400},
	{name: "an unknown pin is 404", method: http.MethodPost, path: "/select", scoped: true, body: object{"token_ids": ids, "pinned_worker": object{"worker_id": 7_000_000_000, "dp_rank": 0}}, theirs: 503, ours: 404},
	{name: "hashes as unsigned numbers are taken", method: http.MethodPost, path: "/select", scoped: true, body: []byte(`{"block_hashes":[18446744073709551615],"sequence_hashes":[3],"isl_tokens":8,"model_name":"nope"}`), theirs: 422, ours: 503},
	{name: "an endpoint that is no URL is refused", method: http.MethodPatch, path: "/workers/", worker: true, body: object{"endpoint": "not a url"}, theirs: 200, ours: 400},
	{name: "kv_transfer is unsupported", method: http.MethodPatch, path: "/workers/", worker: true, body: object{"kv_transfer_domain": "d"}, theirs: 200, ours: 400},
	{name: "router_hint is unsupported", method: http.MethodPatch, path: "/workers/", worker: true, body: object{"router_hint_worker_type": "prefill"}, theirs: 200, ours: 400},
	{name: "output_block without a body and its type is 400", method: http.MethodPost, path: "/reservations/nobody/output_block", theirs: 415, ours: 400},
	{name: "our own route: openapi.json", method: http.MethodGet, path: "/openapi.json", theirs: 404, ours: 200},
	{name: "our own route: query", method: http.MethodPost, path: "/query", scoped: true, body: object{"token_ids": ids}, theirs: 404, ours: 200},

	{name: "a key that is there twice is 400: token_ids", method: http.MethodPost, path: "/select", body: []byte(`{"token_ids":[1],"token_ids":[2]}`), theirs: 422, ours: 400},
	{name: "a key that is there twice is 400: pinned_worker", method: http.MethodPost, path: "/select_and_reserve", body: []byte(`{"token_ids":[1],"pinned_worker":{"worker_id":1,"worker_id":1,"dp_rank":0}}`), theirs: 422, ours: 400},
	{name: "a key that is there twice is 400: session_context", method: http.MethodPost, path: "/select", body: []byte(`{"token_ids":[1],"session_context":{"session_id":"a","session_id":"a"}}`), theirs: 422, ours: 400},
	{name: "a key that is there twice is 400: cache_salt", method: http.MethodPost, path: "/overlap_scores", body: []byte(`{"token_ids":[1],"cache_salt":"a","cache_salt":"a"}`), theirs: 422, ours: 400},
	{name: "a key that is there twice is 400: reservations", method: http.MethodPost, path: "/reservations", body: []byte(`{"selection_id":"odd","selection_id":"odd"}`), theirs: 422, ours: 400},
	{name: "a key that is there twice is 400: decay_fraction", method: http.MethodPost, path: "/reservations/nobody/output_block", body: []byte(`{"decay_fraction":0.5,"decay_fraction":0.5}`), theirs: 422, ours: 400},
	{name: "a key that is there twice is 400: worker_id", method: http.MethodPost, path: "/workers", body: []byte(`{"worker_id":7,"worker_id":7}`), theirs: 422, ours: 400},
	{name: "a key that is there twice is 400: taints", method: http.MethodPatch, path: "/workers/", worker: true, body: []byte(`{"taints":[],"taints":[]}`), theirs: 422, ours: 400},
	{name: "a key of a map that is there twice is 400: preferred_taints", method: http.MethodPost, path: "/select", body: []byte(`{"model_name":"nope","token_ids":[1],"routing_constraints":{"preferred_taints":{"a":1,"a":2}}}`), theirs: 503, ours: 400},
	{name: "a key of a map that is there twice is 400: agent_headers", method: http.MethodPost, path: "/select", body: []byte(`{"model_name":"nope","token_ids":[1],"session_context":{"session_id":"a","agent_headers":{"x":["1"],"x":["2"]}}}`), theirs: 503, ours: 400},
	{name: "a key of a map that is there twice is 400: topology_domains", method: http.MethodPost, path: "/workers", body: []byte(`{"worker_id":7,"topology_domains":{"a":"x","a":"y"}}`), theirs: 201, ours: 400},
	{name: "a key of a map that is there twice is 400: kv_events_endpoints", method: http.MethodPost, path: "/workers", body: []byte(`{"worker_id":7,"kv_events_endpoints":{"0":"tcp://127.0.0.1:1","0":"tcp://127.0.0.1:2"}}`), theirs: 201, ours: 400},
	{name: "text after the JSON is refused: select", method: http.MethodPost, path: "/select", scoped: true, body: object{"token_ids": ids}, tail: " x", theirs: 200, ours: 400},
	{name: "text after the JSON is refused: potential_loads", method: http.MethodPost, path: "/potential_loads", scoped: true, body: object{"token_ids": ids}, tail: "{}", theirs: 200, ours: 400},
	{name: "text after the JSON is refused: workers", method: http.MethodPost, path: "/workers", body: object{"worker_id": 7}, tail: "]", theirs: 201, ours: 400},
	{name: "text after the JSON is refused: output_block", method: http.MethodPost, path: "/reservations/nobody/output_block", body: object{}, tail: ",", theirs: 404, ours: 400},
	{name: "a count over 2147483647 is refused: isl_tokens", method: http.MethodPost, path: "/select", scoped: true, body: object{"block_hashes": ids, "sequence_hashes": ids, "isl_tokens": 1 << 31}, theirs: 200, ours: 400},
	{name: "a count over 2147483647 is refused: expected_output_tokens", method: http.MethodPost, path: "/select", scoped: true, body: object{"token_ids": ids, "expected_output_tokens": 1 << 31}, theirs: 200, ours: 400},
	{name: "a large number of a worker is refused: max_num_batched_tokens", method: http.MethodPost, path: "/workers", body: object{"worker_id": 7, "max_num_batched_tokens": 1<<30 + 1}, theirs: 201, ours: 400},
	{name: "a large number of a worker is refused: total_kv_blocks", method: http.MethodPost, path: "/workers", body: object{"worker_id": 7, "total_kv_blocks": 1<<30 + 1}, theirs: 201, ours: 400},
	{name: "a name of more than 256 bytes is refused: model_name", method: http.MethodPost, path: "/workers", body: object{"worker_id": 7, "model_name": strings.Repeat("m", 257)}, theirs: 201, ours: 400},
	{name: "an id in a path that is no UTF-8 is unknown", method: http.MethodDelete, path: "/reservations/%ff", theirs: 400, ours: 404},
}
