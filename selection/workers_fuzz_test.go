package selection_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/selection"
)

// What is taken is a record that the catalog takes, is shown as it was given, and
// stays so over a change of nothing; the same worker put by another surface is shown
// in fields that ask for the same record.
func FuzzWorkerBody(f *testing.F) {
	for _, seed := range []string{
		`{"worker_id":1}`, `{"worker_id":0,"endpoint":"http://h:1/","block_size":4,"kv_events_endpoint":"tcp://127.0.0.1:1","replay_endpoint":"tcp://127.0.0.1:2"}`,
		`{"worker_id":2,"data_parallel_start_rank":3,"data_parallel_size":2,"kv_events_endpoints":{"3":"tcp://h:1","4":"","9":"ipc:///x"},"replay_endpoint":"tcp://h:1"}`,
		`{"worker_id":3,"data_parallel_size":0,"kv_events_endpoint":"tcp://h:1","taints":["b","a","a"],"topology_domains":{"zone":"z"},"is_eagle":true,"stable_routing_id":"s"}`,
		`{"worker_id":4,"data_parallel_size":4294967295,"data_parallel_start_rank":4294967295,"max_num_batched_tokens":18446744073709551615}`,
		`{"worker_id":5,"kv_event_source_mode":"framework_v1","kv_transfer_domain":null,"total_kv_blocks":0}`, `{}`, `[]`, `{"worker_id":"1"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		rec, err := selection.RecordOf(body)
		if err != nil {
			return
		}
		again, err := rec.Normalised()
		if diff := cmp.Diff(rec, again); diff != "" || err != nil {
			t.Fatalf("%q: normalising changes the record: %v %s", body, err, diff)
		}
		same, err := selection.Patched(rec, []byte(`{}`))
		if err != nil {
			t.Fatalf("%q: %v", body, err)
		}
		if diff := cmp.Diff(fields(t, rec), fields(t, same)); diff != "" {
			t.Errorf("%q: a change of nothing: %s", body, diff)
		}
		same.Asked, rec.Asked = "", ""
		if diff := cmp.Diff(rec, same); diff != "" {
			t.Errorf("%q: a change of nothing: %s", body, diff)
		}
		foreign, err := selection.Patched(rec, []byte(`{}`))
		if rec.DPSize > 0 && (err != nil || !foreign.Equal(rec)) {
			t.Errorf("%q: as of another surface: %v %s", body, err, cmp.Diff(rec, foreign))
		}
	})
}

func fields(t *testing.T, rec fleet.Record) (v any) {
	t.Helper()
	text, err := selection.FieldsOf(&rec)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	return v
}
