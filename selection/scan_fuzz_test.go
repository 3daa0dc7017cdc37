package selection_test

import (
	"encoding/json"
	"errors"
	"slices"
	"testing"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/internal/httpapi"
	"github.com/routerd/routerd/selection"
)

// lenient is what a general decoder reads of a selection.
type lenient struct {
	TokenIDs       []uint32 `json:"token_ids"`
	SelectionID    string   `json:"selection_id"`
	Session        string   `json:"session_id"`
	SessionContext *struct {
		ID string `json:"session_id"`
	} `json:"session_context"`
	Strict  int               `json:"strict_priority"`
	Allowed []json.RawMessage `json:"allowed_worker_ids"`
	Routing *struct {
		TokenIDs []uint32 `json:"routing_token_ids"`
	} `json:"mm_routing_info"`
}

// Whatever is taken is JSON, and a general decoder reads the same; what is refused is
// refused in the one form.
func FuzzSelectBody(f *testing.F) {
	for _, seed := range []string{
		`{"token_ids":[1,2,3]}`, `{"token_ids":[1, 22, 333,4444 ,55555],"selection_id":"a\u00fc"}`, `{"token_ids":null}`, `{}`, `[]`, `{"token_ids":[1],"token_ids":[2]}`,
		`{"block_hashes":[-1,18446744073709551615],"sequence_hashes":[3,4],"isl_tokens":8}`,
		`{"token_ids":[],"session_context":{"session_id":"s","parent_session_id":null,"session_final":true,"input_trigger":"other","agent_headers":{"x":["1"]}}}`,
		`{"token_ids":[1],"mm_routing_info":{"routing_token_ids":[7],"block_mm_infos":[null,{"mm_objects":[{"mm_hash":5,"offsets":[[0,2]]}]}]}}`,
		`{"token_ids":[1],"pinned_worker":{"worker_id":1,"dp_rank":0},"affinity_target":{"worker_id":"2"},"allowed_worker_ids":[1,"2"],"strict_priority":3,"priority_jump":2.5}`,
		`{"token_ids":[1],"routing_constraints":{"required_taints":["b"],"preferred_taints":{"b":1.5}},"router_config_override":{"router_temperature":0.5}}`,
		`{"token_ids":[1],"advisory":true} x`, `{"token_ids":[01]}`, `{"token_ids":[1` + "\x00" + `]}`, `{"to\u006ben_ids":[9]}`,
	} {
		f.Add([]byte(seed))
	}
	var bodies selection.Bodies
	f.Fuzz(func(t *testing.T, raw []byte) {
		err := bodies.Select(raw, func(req *core.Request) {
			var twin lenient
			if err := json.Unmarshal(raw, &twin); err != nil {
				t.Fatalf("%q was taken: %v", raw, err)
			}
			tokens := twin.TokenIDs
			if twin.Routing != nil && len(twin.Routing.TokenIDs) > 0 {
				tokens = twin.Routing.TokenIDs
			}
			if !slices.Equal(req.Prompt.Tokens, tokens) || (tokens == nil) != (req.Prompt.Tokens == nil) {
				t.Errorf("%q: tokens %v, want %v", raw, req.Prompt.Tokens, tokens)
			}
			session := twin.Session
			if c := twin.SessionContext; c != nil {
				if session = ""; req.SessionContext == nil || req.SessionContext.ID != c.ID {
					t.Errorf("%q: session %+v", raw, req.SessionContext)
				}
			}
			if req.Session != session || req.SelectionID != twin.SelectionID || req.Priority != twin.Strict || len(req.Allow) != len(twin.Allowed) || (req.Allow == nil) != (twin.Allowed == nil) {
				t.Errorf("%q: got %+v", raw, req)
			}
		})
		if err == nil {
			return
		}
		refused, ok := errors.AsType[*httpapi.Failure](err)
		if !ok || refused.HTTPStatus() != 400 && refused.HTTPStatus() != 422 || len(refused.Message) > 2000 {
			t.Errorf("%q: %v", raw, err)
		}
	})
}
