package httpapi_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/internal/httpapi"
)

func TestStrictJSONTakesWhatTheTypeHas(t *testing.T) {
	var rec fleet.Record
	err := httpapi.DecodeStrict([]byte(` {"id":"5","name":"n","kv_events":{"0":"tcp://a:1"},"labels":{"any":"key"},"adapters":[{"name":"a","id":3}]} `), &rec)
	if err != nil || rec.ID != 5 || rec.KVEvents[0] != "tcp://a:1" || rec.Labels["any"] != "key" || rec.Adapters[0].ID != 3 {
		t.Errorf("got %+v, %v", rec, err)
	}
}

func TestStrictJSONBoundsWhatItRepeats(t *testing.T) {
	long := strings.Repeat("k", 100_000)
	for _, body := range []string{
		`{"` + long + `":1}`, long, `{"name":["` + long + `"]}`, `{"id":"` + long + `"}`, `{"labels":{"` + long + `":1}}`,
		`{"name":` + strings.Repeat(`[`, 100_000), `{"name":` + strings.Repeat(`{"a":`, 100_000),
	} {
		var rec fleet.Record
		err := httpapi.DecodeStrict([]byte(body), &rec)
		if err == nil || len(err.Error()) > 1000 {
			t.Errorf("%.30s…: got an error of %d bytes", body, len(err.Error()))
		}
		if f, ok := errors.AsType[*httpapi.Failure](err); ok && (f.HTTPStatus() != 400 || len(f.Details.Item) > 200) {
			t.Errorf("%.30s…: got %d and an item of %d bytes", body, f.HTTPStatus(), len(f.Details.Item))
		}
	}
}

// Whatever is accepted is what a lenient reader reads too, and nothing is lost:
// every key of the input is a field.
func FuzzStrictJSON(f *testing.F) {
	for _, seed := range []string{
		`{}`, `{"id":1,"name":"a"}`, `{"id":1,"id":2}`, `{"Name":"a"}`, `{"kv_events":{"0":"x"}}`, `{"adapters":[{"name":"a"},{}]}`, `{"labels":{"a":"b","a":"c"}}`,
		`[]`, `null`, `{"name":null}`, `{"name":"\ud800"}`, `{"a`, `{"name":"a"}{}`, "{\"na\u006de\":\"a\"}", `{"taints":["a",1]}`, `{"dp_size":1e3}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var strict, lenient fleet.Record
		err := httpapi.DecodeStrict(body, &strict)
		if err != nil {
			_, field := errors.AsType[*fleet.FieldError](err)
			if f, ok := errors.AsType[*httpapi.Failure](err); !field && (!ok || f.HTTPStatus() != 400) {
				t.Errorf("%q: %v", body, err)
			}
			return
		}
		if err := json.Unmarshal(body, &lenient); err != nil || !strict.Equal(lenient) {
			t.Errorf("%q: %v", body, err)
		}
		var keys map[string]json.RawMessage
		if err := json.Unmarshal(body, &keys); err != nil {
			t.Fatal(err)
		}
		for k := range keys {
			if !slices.Contains(recordKeys(), k) {
				t.Errorf("key %q of %q is no field", k, body)
			}
		}
	})
}

func recordKeys() []string {
	return []string{
		"id", "name", "url", "model", "group", "engine", "block_size", "dp_start", "dp_size", "kv_events", "replay",
		"max_batched_tokens", "total_kv_blocks", "labels", "taints", "adapters",
	}
}
