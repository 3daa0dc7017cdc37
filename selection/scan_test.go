package selection_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/routerd/routerd/core"
)

func TestRow_BrokenJSON(t *testing.T) {
	w := two(t, options{})
	for _, body := range []string{``, `{`, `{"token_ids":[1,2`, `{"token_ids":[1,]}`, `{"token_ids":[1]}x`, `{"token_ids":[1],}`, `{token_ids:[1]}`, `{"token_ids":[01]}`, `nul`, `{"a"}`} {
		for _, path := range []string{"/select", "/select_and_reserve", "/reservations"} {
			a := w.do(t, "POST", path, body, "Content-Type", "application/json")
			if a.status != 400 || a.at(t, "error.code") != "invalid" {
				t.Errorf("%s %s: got %d: %s", path, body, a.status, a.body)
			}
		}
	}
}

func TestRow_WrongFieldTypesAndValuesOutOfRange(t *testing.T) {
	w := two(t, options{})
	for _, tc := range []struct {
		body   string
		status int
		item   string
	}{
		{`[]`, 422, "body"},
		{`"x"`, 422, "body"},
		{`null`, 422, "body"},
		{`{"token_ids":"x"}`, 422, "token_ids"},
		{`{"token_ids":{}}`, 422, "token_ids"},
		{`{"token_ids":[1,2,-3,4]}`, 400, "token_ids[2]"},
		{`{"token_ids":[1,2,4294967296]}`, 400, "token_ids[2]"},
		{`{"token_ids":[1,2.5]}`, 422, "token_ids[1]"},
		{`{"token_ids":[1,null]}`, 422, "token_ids[1]"},
		{`{"token_ids":[1],"model_name":7}`, 422, "model_name"},
		{`{"token_ids":[1],"model_name":null}`, 422, "model_name"},
		{`{"token_ids":[1],"routing_group":[]}`, 422, "routing_group"},
		{`{"token_ids":[1],"lora_name":true}`, 422, "lora_name"},
		{`{"token_ids":[1],"cache_salt":1}`, 422, "cache_salt"},
		{`{"token_ids":[1],"is_eagle":1}`, 422, "is_eagle"},
		{`{"token_ids":[1],"advisory":"yes"}`, 422, "advisory"},
		{"{\"token_ids\":[1],\"session_id\":\"\xff\"}", 400, "body"},
		{`{"token_ids":[1],"session_id":"\ud800"}`, 400, "body"},
		{`{"token_ids":[1],"allowed_worker_ids":[` + strings.Repeat("1,", core.MaxAllowed) + `2]}`, 400, "allowed_worker_ids"},
		{`{"token_ids":[1],"selection_id":5}`, 422, "selection_id"},
		{`{"token_ids":[1],"selection_id":"` + strings.Repeat("x", 257) + `"}`, 400, "selection_id"},
		{`{"token_ids":[1],"strict_priority":-1}`, 400, "strict_priority"},
		{`{"token_ids":[1],"strict_priority":4294967296}`, 400, "strict_priority"},
		{`{"token_ids":[1],"strict_priority":1.5}`, 422, "strict_priority"},
		{`{"token_ids":[1],"expected_output_tokens":-1}`, 400, "expected_output_tokens"},
		{`{"token_ids":[1],"expected_output_tokens":"4"}`, 422, "expected_output_tokens"},
		{`{"token_ids":[1],"priority_jump":-1}`, 400, "priority_jump"},
		{`{"token_ids":[1],"priority_jump":86401}`, 400, "priority_jump"},
		{`{"token_ids":[1],"priority_jump":true}`, 422, "priority_jump"},
		{`{"token_ids":[1],"allowed_worker_ids":{}}`, 422, "allowed_worker_ids"},
		{`{"token_ids":[1],"allowed_worker_ids":[1,"x"]}`, 422, "allowed_worker_ids[1]"},
		{`{"token_ids":[1],"allowed_worker_ids":[18446744073709551616]}`, 400, "allowed_worker_ids[0]"},
		{`{"token_ids":[1],"routing_constraints":{"required_taints":"b"}}`, 422, "routing_constraints.required_taints"},
		{`{"token_ids":[1],"routing_constraints":{"preferred_taints":{"b":"1"}}}`, 422, "routing_constraints.preferred_taints.b"},
		{`{"token_ids":[1],"routing_constraints":null}`, 422, "routing_constraints"},
		{`{"block_hashes":[1e3]}`, 422, "block_hashes[0]"},
		{`{"sequence_hashes":[18446744073709551616]}`, 400, "sequence_hashes[0]"},
		{`{"isl_tokens":-1}`, 400, "isl_tokens"},
	} {
		a := w.post(t, "/select", tc.body)
		if a.status != tc.status || a.at(t, "error.details.item") != tc.item || a.at(t, "error.details.allowed") == "absent" {
			t.Errorf("%.90s: got %d at %s, want %d at %s: %s", tc.body, a.status, a.at(t, "error.details.item"), tc.status, tc.item, a.body)
		}
	}
	w.post(t, "/select", `{"token_ids":[1,2,3,4],"priority_jump":2.5,"strict_priority":3,"expected_output_tokens":4}`).want(t, 200)
	w.post(t, "/select", ` { "token_ids" : [ 1 , 2 ] , "lora_name" : null , "cache_salt" : "s" , "is_eagle" : false } `).want(t, 200)
}

func TestRow_UnknownFieldsAreRefusedByName(t *testing.T) {
	w := two(t, options{})
	for body, item := range map[string]string{
		`{"token_ids":[1],"tokenids":[2]}`:                                    "tokenids",
		`{"token_ids":[1],"Token_ids":[2]}`:                                   "Token_ids",
		`{"token_ids":[1],"worker_id":2}`:                                     "worker_id",
		`{"token_ids":[1],"token_ids":[2]}`:                                   "token_ids",
		`{"token_ids":null,"token_ids":[2]}`:                                  "token_ids",
		`{"token_ids":[1],"pinned_worker":{"worker_id":1,"dp_rank":0,"a":1}}`: "pinned_worker.a",
		`{"token_ids":[1],"routing_constraints":{"taints":[]}}`:               "routing_constraints.taints",
		`{"token_ids":[1],"kv_hint":1}`:                                       "kv_hint",
	} {
		a := w.post(t, "/select", body).want(t, 400)
		if got := a.at(t, "error.details.item"); got != item || a.at(t, "error.details.allowed") == "absent" {
			t.Errorf("%s: item %s: %s", body, got, a.body)
		}
	}
	a := w.post(t, "/select", `{"`+strings.Repeat("k", 100_000)+`":1}`).want(t, 400)
	if len(a.body) > 2000 {
		t.Errorf("an answer of %d bytes", len(a.body))
	}
}

func TestT3_ErrorsRepeatNothingOfAPrompt(t *testing.T) {
	w := two(t, options{})
	for _, body := range []string{
		`{"token_ids":[777777123,-777777123]}`, `{"token_ids":["777777123"]}`, `{"token_ids":"777777123"}`, `{"block_hashes":[777777123.5]}`, `{"token_ids":[777777123`,
	} {
		if a := w.post(t, "/select", body); strings.Contains(string(a.body), "777777123") {
			t.Errorf("%s: %s", body, a.body)
		}
	}
}

func TestALongPromptIsReadWhole(t *testing.T) {
	w := two(t, options{})
	text := make([]string, 40_000)
	for i := range text {
		text[i] = fmt.Sprint(i * 3)
	}
	for _, sep := range []string{",", ", ", ",\n\t"} {
		a := w.post(t, "/select_and_reserve", `{"token_ids":[`+strings.Join(text, sep)+`]}`).want(t, 200)
		if a.at(t, "isl_tokens") != "40000" {
			t.Errorf("%q: %s tokens", sep, a.at(t, "isl_tokens"))
		}
	}
}
