//go:build e2e

package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/routerd/routerd/host/wasmtest"
	"github.com/routerd/routerd/sim"
	"github.com/routerd/routerd/sim/simtest"
)

// The workers that byID chooses among three.
const lowest, highest = "w1", "w3"

// The order that an armed guest goes wrong at: a request with this max_tokens.
const armedAt = 666

// byID is a guest that scores rows by worker id: the highest wins, or the
// lowest.
func byID(name string, highest bool) []byte {
	g := wasmtest.Guest{Name: name, Columns: []string{"worker.id"}, ScoreTypes: wasmtest.ColumnTypes}
	g.Score = wasmtest.Column(0)
	if !highest {
		g.Score = wasmtest.Column(0, wasmtest.Op(wasmtest.F64Neg))
	}
	return g.Bytes()
}

// byDistance is a guest that prefers the worker whose id is nearest to one.
func byDistance(id float64) []byte {
	g := wasmtest.Guest{Name: "nearest", Columns: []string{"worker.id"}, ScoreTypes: wasmtest.ColumnTypes}
	g.Score = wasmtest.Column(0, wasmtest.F64(id), wasmtest.Op(wasmtest.F64Sub, 0x99, wasmtest.F64Neg)) // −|id − …|
	return g.Bytes()
}

// armed is a guest that prefers the highest worker id and does something bad
// when a request has max_tokens of armedAt, which no self-test asks. extra are
// further members of the manifest, each with a leading comma.
func armed(g wasmtest.Guest, bad wasmtest.Code) wasmtest.Guest {
	g.Columns, g.ScoreTypes = []string{"worker.id"}, wasmtest.ColumnTypes
	g.Extra += `,"request_fields":["max_tokens"]`
	g.Score = wasmtest.Cat(
		wasmtest.Field(0), wasmtest.F64(armedAt), wasmtest.Op(0x61), // f64.eq
		wasmtest.If(bad),
		wasmtest.Column(0),
	)
	return g
}

// apiError is the error form of the admin API.
type apiError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Details struct {
		Step    string `json:"step"`
		Item    string `json:"item"`
		Allowed string `json:"allowed"`
	} `json:"details"`
}

// refusal makes an admin call that must be refused with a 4xx of the one form.
func (r *router) refusal(method, path string, body []byte) apiError {
	r.t.Helper()
	status, answer := r.raw(method, path, body)
	return refusedWith(r.t, fmt.Sprintf("%s %s %.40q", method, path, body), status, answer)
}

// refusedWith reads the answer to what must have been refused.
func refusedWith(t *testing.T, what string, status int, answer []byte) apiError {
	t.Helper()
	var got struct {
		Error apiError `json:"error"`
	}
	if err := json.Unmarshal(answer, &got); err != nil || status < 400 || status > 499 || got.Error.Code == "" || got.Error.Message == "" {
		t.Errorf("%s: got %d %.300s, want a 4xx with code and message", what, status, answer)
	}
	return got.Error
}

// scorer is the specification of a policy with one scorer.
func scorer(use string) map[string]any {
	return map[string]any{"scorers": []map[string]any{{"use": use}}}
}

// revise stores a module under a name and makes a revision of the default
// policy that scores by it.
func (r *router) revise(name string, wasm []byte) int {
	r.t.Helper()
	r.must("PUT", "/v1/modules/"+name, wasm, nil)
	var made struct {
		Revision int `json:"revision"`
	}
	r.must("PUT", "/v1/policies/default", scorer("module:"+name), &made)
	if made.Revision == 0 {
		r.t.Fatal("the new revision has no number")
	}
	return made.Revision
}

func (r *router) activate(revision int) {
	r.t.Helper()
	var got struct {
		Active int `json:"active"`
	}
	r.must("POST", "/v1/policies/default/activate", map[string]int{"revision": revision}, &got)
	if got.Active != revision {
		r.t.Fatalf("activate answered that %d is active, want %d", got.Active, revision)
	}
}

// policyView is what the tests read of GET /v1/policies/{name}.
type policyView struct {
	Active    int `json:"active"`
	Previous  int `json:"previous"`
	Revisions []struct {
		Revision int    `json:"revision"`
		State    string `json:"state"`
	} `json:"revisions"`
	Canary *struct {
		Revision int     `json:"revision"`
		Percent  float64 `json:"percent"`
		By       string  `json:"by"`
	} `json:"canary"`
	Shadow *struct {
		Revision int          `json:"revision"`
		Sample   float64      `json:"sample"`
		Report   shadowReport `json:"report"`
	} `json:"shadow"`
	History []policyChange `json:"history"`
}

// policyChange is an entry of a policy's history.
type policyChange struct {
	Who      string `json:"who"`
	What     string `json:"what"`
	Revision int    `json:"revision"`
	Previous int    `json:"previous"`
	Why      string `json:"why"`
}

// shadowReport is what the tests read of what a shadow came to.
type shadowReport struct {
	Seen    uint64 `json:"seen"`
	Sampled uint64 `json:"sampled"`
	Shed    uint64 `json:"shed"`
	Decided uint64 `json:"decided"`
	Agreed  uint64 `json:"agreed"`
	Regret  struct {
		Mean float64 `json:"mean"`
		Max  float64 `json:"max"`
	} `json:"regret"`
	Micros int64             `json:"us"`
	Faults map[string]uint64 `json:"faults"`
}

func (r *router) policy(name string) policyView {
	r.t.Helper()
	var p policyView
	r.must("GET", "/v1/policies/"+name, nil, &p)
	return p
}

// state is that of a revision of the default policy.
func (r *router) state(revision int) string {
	r.t.Helper()
	for _, v := range r.policy("default").Revisions {
		if v.Revision == revision {
			return v.State
		}
	}
	r.t.Fatalf("revision %d is not in the policy's view", revision)
	return ""
}

// decision is what the tests read of a decision record.
type decision struct {
	Policy struct {
		Revision int `json:"revision"`
	} `json:"policy"`
	Rows []struct {
		Worker  json.RawMessage    `json:"worker"`
		Columns map[string]float64 `json:"columns"`
	} `json:"rows"`
	Pick struct {
		By string `json:"by"`
	} `json:"pick"`
	Fault *struct {
		Code   string `json:"code"`
		Reason string `json:"reason"`
	} `json:"fault"`
}

func (r *router) decision(head http.Header) decision {
	r.t.Helper()
	id := head.Get("x-routerd-decision")
	if id == "" {
		r.t.Fatal("the answer names no decision")
	}
	var d decision
	r.must("GET", "/v1/decisions/"+id, nil, &d)
	return d
}

// complete asks for a completion of a few tokens.
func (r *router) complete(maxTokens int) (int, http.Header, []byte) {
	r.t.Helper()
	return r.ask("/v1/completions", map[string]any{"model": "m", "prompt": "one two three", "max_tokens": maxTokens})
}

// chooses checks which worker the active revision chooses.
func (r *router) chooses(worker string) {
	r.t.Helper()
	if status, head, answer := r.complete(2); status != http.StatusOK || head.Get("x-routerd-worker") != worker {
		r.t.Errorf("status %d from %q, want 200 from %s: %s", status, head.Get("x-routerd-worker"), worker, answer)
	}
}

// three is the configuration of three instant engines, w1 to w3.
func three(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("workers:\n  static:\n")
	for i := range 3 {
		name := "w" + string(rune('1'+i))
		b.WriteString(worker(i+1, name, "m", simtest.Start(t, func(c *sim.Config) { c.Name, c.Model, c.AnswerTokens = name, "m", 4 })))
	}
	return b.String()
}
