package selection_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/selection"
)

// operation is what the tests read of the description.
type operation struct {
	RequestBody *struct {
		Required bool
		Content  map[string]struct{ Schema schema }
	}
	Responses map[string]struct {
		Content map[string]struct{ Schema schema }
	}
	Security *[]any
}

type schema struct {
	Type                 any
	Properties           map[string]schema
	Required             []string
	AdditionalProperties any
	Items                *schema
	Enum                 []any
	Ref                  string `json:"$ref"`
}

func describedPaths(t *testing.T, s *world) map[string]map[string]operation {
	t.Helper()
	var doc struct {
		Paths map[string]map[string]operation
	}
	if err := json.Unmarshal(s.do(t, "GET", "/openapi.json", "").want(t, 200).body, &doc); err != nil {
		t.Fatal(err)
	}
	return doc.Paths
}

func TestTheDescriptionCoversTheTable(t *testing.T) {
	paths := describedPaths(t, two(t, options{}))
	var got, want []string
	for path, ops := range paths {
		for method := range ops {
			got = append(got, strings.ToUpper(method)+" "+path)
		}
	}
	for _, r := range selection.Routes() {
		want = append(want, r.Method+" "+r.Pattern)
		op := paths[r.Pattern][strings.ToLower(r.Method)]
		for _, status := range append([]int{400, 408, 431, 500}, r.Good...) {
			if _, ok := op.Responses[strconv.Itoa(status)]; !ok {
				t.Errorf("%s %s: %d is not described", r.Method, r.Pattern, status)
			}
		}
		if _, ok := op.Responses["401"]; ok == r.Public || r.Public != (op.Security != nil) {
			t.Errorf("%s %s: 401 described: %t", r.Method, r.Pattern, ok)
		}
		if r.Body != (op.RequestBody != nil) {
			t.Errorf("%s %s: a body described: %t", r.Method, r.Pattern, op.RequestBody != nil)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// What is not described is refused, what must be given is asked for, and what may be
// null may be null.
func TestBodiesAreDescribedAsTheyAreRead(t *testing.T) {
	w := two(t, options{})
	for path, ops := range describedPaths(t, w) {
		for method, op := range ops {
			if op.RequestBody == nil || strings.HasPrefix(path, "/replica_sync") {
				continue
			}
			body := op.RequestBody.Content["application/json"].Schema
			if body.AdditionalProperties != false {
				t.Errorf("%s: further fields are allowed", path)
			}
			at := strings.ReplaceAll(path, "{id}", "1")
			send := func(body string) answer { return w.do(t, strings.ToUpper(method), at, body) }
			if a := send(`{"nobody_knows":1}`); a.status != 400 || !strings.Contains(string(a.body), "nobody_knows") {
				t.Errorf("%s: an unknown field: %d %s", path, a.status, a.body)
			}
			// without is a body that is right but for one field.
			without := func(name string) map[string]any {
				fields := map[string]any{"selection_id": "a", "worker_id": 1, "token_ids": []int{1}, "block_hashes": []int{1}}
				maps.DeleteFunc(fields, func(k string, _ any) bool { _, ok := body.Properties[k]; return !ok || k == name })
				if fields["token_ids"] != nil {
					delete(fields, "block_hashes")
				}
				return fields
			}
			as := func(fields map[string]any) string {
				text, err := json.Marshal(fields)
				if err != nil {
					t.Fatal(err)
				}
				return string(text)
			}
			for _, name := range body.Required {
				if a := send(as(without(name))); a.status != 422 || !strings.Contains(string(a.body), name) {
					t.Errorf("%s without %s: %d %s", path, name, a.status, a.body)
				}
			}
			for name, field := range body.Properties {
				kinds := fmt.Sprint(field.Type)
				if name == "token_ids" && !slices.Contains(body.Required, name) {
					continue // which is the prompt here
				}
				fields := without(name)
				fields[name] = nil
				a := send(as(fields))
				complains := a.status == 422 || a.status == 400
				if null := strings.Contains(kinds, "null"); null && complains || !null && !complains && path != "/workers" {
					t.Errorf("%s: %s null (described as %s): %d %s", path, name, kinds, a.status, a.body)
				}
			}
		}
	}
}

// fits tells what of a value is not as described.
func (s schema) fits(v any, at string) (wrong []string) {
	kind := map[string]any{}
	switch k := s.Type.(type) {
	case string:
		kind[k] = true
	case []any:
		for _, k := range k {
			kind[fmt.Sprint(k)] = true
		}
	default:
		return nil // anything
	}
	is := "null"
	switch v := v.(type) {
	case string:
		is = "string"
	case bool:
		is = "boolean"
	case json.Number:
		if is = "number"; !strings.ContainsAny(v.String(), ".eE") && kind["integer"] != nil {
			is = "integer"
		}
	case []any:
		is = "array"
		for i, e := range v {
			if s.Items != nil {
				wrong = append(wrong, s.Items.fits(e, fmt.Sprintf("%s[%d]", at, i))...)
			}
		}
	case map[string]any:
		is = "object"
		for _, name := range s.Required {
			if _, ok := v[name]; !ok {
				wrong = append(wrong, at+"."+name+" is missing")
			}
		}
		for name, e := range v {
			of, ok := s.Properties[name]
			if !ok && s.Properties != nil {
				wrong = append(wrong, at+"."+name+" is not described")
			}
			wrong = append(wrong, of.fits(e, at+"."+name)...)
		}
	}
	if kind[is] == nil {
		wrong = append(wrong, fmt.Sprintf("%s is of type %s, described as %v", at, is, s.Type))
	}
	return wrong
}

func TestAnswersAreAsDescribed(t *testing.T) {
	w := two(t, options{})
	paths := describedPaths(t, w)
	for _, c := range []struct{ method, path, route, body string }{
		{"POST", "/select", "", `{` + nine + `}`},
		{"POST", "/select", "", `{"advisory":true,"selection_id":"s",` + nine + `}`},
		{"POST", "/select_and_reserve", "", `{"selection_id":"b",` + nine + `}`},
		{"POST", "/reservations", "", `{"selection_id":"c","worker_id":1,` + nine + `}`},
		{"POST", "/reservations/b/prefill_complete", "/reservations/{id}/prefill_complete", ``},
		{"POST", "/reservations/b/output_block", "/reservations/{id}/output_block", `{}`},
		{"DELETE", "/reservations/b", "/reservations/{id}", ``},
		{"GET", "/workers", "", ``},
		{"GET", "/loads", "", ``},
		{"GET", "/health", "", ``},
		{"GET", "/ready", "", ``},
		{"GET", "/dump", "", ``},
		{"POST", "/potential_loads", "", `{` + nine + `}`},
		{"POST", "/overlap_scores", "", `{` + nine + `}`},
		{"POST", "/query", "", `{` + nine + `}`},
		{"POST", "/query_by_hash", "", `{"block_hashes":[1,2]}`},
		{"POST", "/replica_sync/register_peer", "", `{"endpoint":"x"}`},
		{"GET", "/replica_sync/peers", "", ``},
	} {
		a := w.do(t, c.method, c.path, c.body)
		route := c.route
		if route == "" {
			route = c.path
		}
		answer, ok := paths[route][strings.ToLower(c.method)].Responses[strconv.Itoa(a.status)]
		if !ok {
			t.Errorf("%s %s: %d is not described: %s", c.method, route, a.status, a.body)
			continue
		}
		d := json.NewDecoder(strings.NewReader(string(a.body)))
		d.UseNumber()
		var v any
		if err := d.Decode(&v); err != nil {
			t.Errorf("%s %s: %v", c.method, route, err)
		}
		for _, wrong := range answer.Content["application/json"].Schema.fits(v, "answer") {
			t.Errorf("%s %s: %s", c.method, route, wrong)
		}
	}
}
