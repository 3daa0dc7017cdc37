package selection_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"
	"testing"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/selection"
)

// limited is a value of a body that has a limit.
type limited struct {
	path       []string // of the field
	keyword    string   // that tells it
	list       bool     // the value stands in a list
	last, over any      // the last value that is right, and the first that is not
}

func (l limited) name() string { return strings.Join(l.path, ".") }

// limits lists those of a schema, with their numbers as they are written.
func limits(s map[string]any, path []string) (out []limited) {
	if items, ok := s["items"].(map[string]any); ok {
		for _, l := range limits(items, path) {
			if len(l.path) == len(path) {
				l.list = true
				out = append(out, l)
			}
		}
	}
	add := func(keyword string, value func(n *big.Int) any, step int64) {
		text, ok := s[keyword].(json.Number)
		n, whole := new(big.Int).SetString(string(text), 10)
		if ok && whole {
			out = append(out, limited{path: path, keyword: keyword, last: value(n), over: value(new(big.Int).Add(n, big.NewInt(step)))})
		}
	}
	number := func(n *big.Int) any { return json.Number(n.String()) }
	add("maximum", number, 1)
	if s["minimum"] == json.Number("0") {
		add("minimum", number, -1)
	}
	add("maxLength", func(n *big.Int) any { return strings.Repeat("x", int(n.Int64())) }, 1)
	add("maxItems", func(n *big.Int) any {
		if items, _ := s["items"].(map[string]any); items["type"] != "string" {
			return numbersFor(n)
		}
		return namesFor(n)
	}, 1)
	add("maxProperties", func(n *big.Int) any {
		all := map[string]any{}
		of, _ := s["additionalProperties"].(map[string]any)
		for i, name := range namesFor(n) {
			if s["propertyNames"] != nil {
				name = fmt.Sprint(i)
			}
			all[name] = map[string]any{"string": "tcp://127.0.0.1:1", "number": 1, "array": []string{"x"}}[fmt.Sprint(of["type"])]
		}
		return all
	}, 1)
	properties, _ := s["properties"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		out = append(out, limits(properties[name].(map[string]any), append(slices.Clone(path), name))...)
	}
	return out
}

func namesFor(n *big.Int) []string {
	names := make([]string, n.Int64())
	for i := range names {
		names[i] = fmt.Sprint("n", i)
	}
	return names
}

func numbersFor(n *big.Int) []int {
	numbers := make([]int, n.Int64())
	for i := range numbers {
		numbers[i] = i
	}
	return numbers
}

// rightBody has every field that some body asks for, of those that this one may have.
func rightBody(schema map[string]any) map[string]any {
	body := map[string]any{"selection_id": "a", "worker_id": 1, "token_ids": []int{1}, "block_hashes": []int{1}}
	properties := schema["properties"].(map[string]any)
	maps.DeleteFunc(body, func(k string, _ any) bool { return properties[k] == nil })
	return body
}

// with is a body in which a field has a value.
func with(body map[string]any, l limited, v any) map[string]any {
	if l.list {
		v = []any{v}
	}
	objects := map[string]map[string]any{
		"session_context": {"session_id": "s"}, "affinity_target": {"worker_id": 1}, "pinned_worker": {"worker_id": 1, "dp_rank": 0},
	}
	at := body
	for _, name := range l.path[:len(l.path)-1] {
		inner := objects[name]
		if inner == nil {
			inner = map[string]any{}
		}
		at[name], at = inner, inner
	}
	at[l.path[len(l.path)-1]] = v
	return body
}

// agreeable takes every change of a worker that a record can have.
type agreeable struct{ noWorkers }

func (agreeable) Update(_ context.Context, id fleet.WorkerID, change func(*fleet.Record) error) (selection.Worker, error) {
	rec := fleet.Record{ID: id, Name: id.String(), Asked: "{}"}
	err := change(&rec)
	return selection.Worker{Record: rec}, err
}

// schemas are those that the description has of bodies, by path and method, with their
// numbers as they are written.
func (w *world) schemas(t *testing.T) map[string]map[string]map[string]any {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(w.do(t, "GET", "/openapi.json", "").want(t, 200).body))
	d.UseNumber()
	var doc struct {
		Paths map[string]map[string]struct {
			RequestBody struct {
				Content map[string]struct{ Schema map[string]any }
			}
		}
	}
	if err := d.Decode(&doc); err != nil {
		t.Fatal(err)
	}
	all := map[string]map[string]map[string]any{}
	for path, methods := range doc.Paths {
		all[path] = map[string]map[string]any{}
		for method, op := range methods {
			if body := op.RequestBody.Content["application/json"].Schema; body != nil {
				all[path][method] = body
			}
		}
	}
	return all
}

// The description has the limits of the code: what is at one is taken, what is past it
// refused by the field's name.
func TestLimitsAreDescribedAsTheyAre(t *testing.T) {
	w := two(t, options{core: withSessions, parts: func(p *selection.Parts) { p.Workers = agreeable{} }})
	found := map[string]bool{}
	for path, methods := range w.schemas(t) {
		for method, body := range methods {
			if strings.HasPrefix(path, "/replica_sync") {
				continue
			}
			for _, l := range limits(body, nil) {
				found[l.name()+" "+l.keyword] = true
				refused := func(v any) (bool, answer) {
					text, err := json.Marshal(with(rightBody(body), l, v))
					if err != nil {
						t.Fatal(err)
					}
					a := w.do(t, strings.ToUpper(method), strings.ReplaceAll(path, "{id}", "1"), string(text))
					named := strings.Contains(string(a.body), l.path[len(l.path)-1])
					return (a.status == 400 || a.status == 422) && named && !strings.Contains(string(a.body), "must not exceed isl_tokens"), a
				}
				if no, a := refused(l.last); no {
					t.Errorf("%s: the last %s: %d %s", path, l.name(), a.status, a.body)
				}
				if no, a := refused(l.over); !no {
					t.Errorf("%s: past the last %s: %d %s", path, l.name(), a.status, a.body)
				}
			}
		}
	}
	for _, limit := range []string{
		"expected_output_tokens maximum", "priority_jump maximum", "isl_tokens maximum", "token_ids maximum", "session_id maxLength", "taints maxItems",
		"block_size maximum", "session_context.agent_headers maxProperties", "allowed_worker_ids maxItems",
	} {
		if !found[limit] {
			t.Errorf("%s is not described", limit)
		}
	}
}

// Every field of every body and answer is told the meaning of.
func TestEveryFieldIsExplained(t *testing.T) {
	var explain func(at string, v any)
	fields := 0
	explain = func(at string, v any) {
		switch v := v.(type) {
		case []any:
			for _, e := range v {
				explain(at, e)
			}
		case map[string]any:
			if properties, ok := v["properties"].(map[string]any); ok {
				for name, of := range properties {
					fields++
					if text, _ := of.(map[string]any)["description"].(string); text == "" {
						t.Errorf("%s %s is not explained", at, name)
					}
				}
			}
			for name, of := range v {
				explain(at+"/"+name, of)
			}
		}
	}
	w := two(t, options{})
	explain("", w.do(t, "GET", "/openapi.json", "").want(t, 200).fields(t)["paths"])
	if fields < 200 {
		t.Errorf("%d fields", fields)
	}
}
