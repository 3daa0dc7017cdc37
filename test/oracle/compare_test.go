//go:build oracle

package oracle_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// pair asks both services the same thing and writes down what differs.
type pair struct {
	theirs, ours *service
	trace        bool // print every request and its answers
	equals       bool // the second is one of theirs too: nothing is excepted
	led          *ledger
	at           string // where in the script, for the words
}

func (p *pair) both(ctx context.Context, method, path string, body any) (x, y answer, err error) {
	if x, err = p.theirs.call(ctx, method, path, body); err != nil {
		return x, y, err
	}
	y, err = p.ours.call(ctx, method, path, body)
	if p.trace {
		fmt.Printf("%s: %s %s %s\n  %s: %d %s\n  %s: %d %s\n", p.at, method, path, words(body), p.theirs.name, x.status, cut(x.text), p.ours.name, y.status, cut(y.text))
	}
	return x, y, err
}

// same asks both and wants the same status and, if it is a good one, the same body
// after view. It returns theirs, and whether all was the same.
func (p *pair) same(ctx context.Context, what, method, path string, body any, view func(any) any) (answer, answer, bool, error) {
	x, y, err := p.both(ctx, method, path, body)
	if err != nil {
		return x, y, false, err
	}
	return x, y, p.judge(what, method+" "+path, body, x, y, view), nil
}

func (p *pair) judge(what, request string, body any, x, y answer, view func(any) any) bool {
	p.led.count(what)
	if x.status != y.status {
		p.led.differ(what, "%s: %s %s: %d %s, ours %d %s", p.at, request, words(body), x.status, cut(x.text), y.status, cut(y.text))
		return false
	}
	// What /ready says while nobody is ready is no error.
	refused := x.status >= http.StatusBadRequest && what != "GET /ready"
	if refused && !p.equals {
		if !p.errorForm(what, request, y) {
			return false
		}
	}
	if refused || view == nil {
		return true
	}
	if diff := unlike(view(tidy(x.body)), view(tidy(y.body))); len(diff) > 0 {
		p.led.differ(what, "%s: %s %s: %s", p.at, request, words(body), strings.Join(diff, "; "))
		return false
	}
	return true
}

// deliberate asks both something on which they are to differ in the way that is
// said, or not at all if both are theirs.
func (p *pair) deliberate(ctx context.Context, name, method, path string, body any, theirs, ours int) error {
	x, y, err := p.both(ctx, method, path, body)
	if err != nil {
		return err
	}
	what := "deliberate: " + name
	p.led.count("requests on which we differ deliberately")
	if p.equals {
		ours = theirs
	}
	if x.status != theirs || y.status != ours {
		p.led.differ(what, "%s: %s %s %s: %d %s (want %d), ours %d %s (want %d)", p.at, method, path, words(body), x.status, cut(x.text), theirs, y.status, cut(y.text), ours)
		return nil
	}
	if p.equals {
		return nil
	}
	p.led.except(name)
	if ours >= http.StatusBadRequest {
		p.errorForm(what, method+" "+path, y)
	}
	return nil
}

// errorForm checks that an error of ours has our form and counts it.
func (p *pair) errorForm(what, request string, y answer) bool {
	body, _ := y.body.(map[string]any)
	fields, _ := body["error"].(map[string]any)
	code, _ := fields["code"].(string)
	message, _ := fields["message"].(string)
	if code == "" || message == "" {
		p.led.differ(what, "%s: %s: not our error form: %d %s", p.at, request, y.status, cut(y.text))
		return false
	}
	p.led.except("our form of errors")
	return true
}

// words is a body with its long lists cut.
func words(body any) string {
	b, ok := body.([]byte)
	if !ok {
		b, _ = json.Marshal(body)
	}
	return cut(longList.ReplaceAll(b, []byte("[$1,…]")))
}

var longList = regexp.MustCompile(`\[(-?\d+(?:,-?\d+){3})(?:,-?\d+){5,}\]`)

func cut(b []byte) string {
	const most = 700
	if len(b) > most {
		return string(b[:most]) + "…"
	}
	return string(b)
}

// tidy writes equal numbers in the same way and drops what may be left out.
func tidy(v any) any {
	switch v := v.(type) {
	case json.Number:
		if !strings.ContainsAny(v.String(), ".eE") {
			return v.String()
		}
		f, _ := v.Float64()
		return strconv.FormatFloat(f, 'f', -1, 64)
	case []any:
		for i := range v {
			v[i] = tidy(v[i])
		}
		return v
	case map[string]any:
		for k := range v {
			v[k] = tidy(v[k])
		}
		return v
	}
	return v
}

// unlike are the first paths at which two bodies differ, theirs first.
func unlike(x, y any) []string {
	var paths []string
	const most = 5
	var walk func(at string, x, y any)
	walk = func(at string, x, y any) {
		if len(paths) >= most || reflect.DeepEqual(x, y) {
			return
		}
		if a, ok := x.(map[string]any); ok {
			if b, ok := y.(map[string]any); ok {
				keys := maps.Clone(a)
				maps.Copy(keys, b)
				for _, k := range slices.Sorted(maps.Keys(keys)) {
					walk(at+"."+k, a[k], b[k])
				}
				return
			}
		}
		if a, ok := x.([]any); ok {
			if b, ok := y.([]any); ok && len(a) == len(b) {
				for i := range a {
					walk(fmt.Sprintf("%s[%d]", at, i), a[i], b[i])
				}
				return
			}
		}
		paths = append(paths, fmt.Sprintf("%s: %s, ours %s", at, words(x), words(y)))
	}
	walk("", x, y)
	return paths
}

// whole compares all of a body.
func whole(v any) any { return v }

// record is a worker's record, or a list of them: taints are a set.
func record(v any) any {
	list, ok := v.([]any)
	if !ok {
		list = []any{v}
		if m, _ := v.(map[string]any); m["workers"] != nil {
			list, _ = m["workers"].([]any)
		}
	}
	for _, r := range list {
		m, _ := r.(map[string]any)
		taints, _ := m["taints"].([]any)
		slices.SortFunc(taints, func(a, b any) int { return cmp.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	}
	return byRank("workers")(v)
}

// byRank sorts the list in a body, or that under the name, by worker and rank.
func byRank(name string) func(any) any {
	return func(v any) any {
		list, ok := v.([]any)
		if m, isMap := v.(map[string]any); isMap {
			list, ok = m[name].([]any)
		}
		if !ok {
			return v
		}
		slices.SortFunc(list, func(a, b any) int {
			return cmp.Or(cmp.Compare(number(a, "worker_id"), number(b, "worker_id")), cmp.Compare(number(a, "dp_rank"), number(b, "dp_rank")))
		})
		return v
	}
}

// loadsView sorts partitions and the ranks in each.
func loadsView(v any) any {
	list, _ := v.([]any)
	for _, p := range list {
		byRank("loads")(p)
	}
	slices.SortFunc(list, func(a, b any) int { return cmp.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	return v
}

// decided compares all of a selection but an id that a service made itself.
func decided(made bool) func(any) any {
	return func(v any) any {
		if m, ok := v.(map[string]any); ok && made {
			delete(m, "selection_id")
		}
		return v
	}
}

// number reads a number of an object; 0 where there is none.
func number(v any, name string) uint64 {
	m, _ := v.(map[string]any)
	switch n := m[name].(type) {
	case json.Number:
		u, _ := strconv.ParseUint(n.String(), 10, 64)
		return u
	case string:
		u, _ := strconv.ParseUint(n, 10, 64)
		return u
	}
	return 0
}

// chosen is the rank that an answer names.
func chosen(a answer) rankKey {
	return rankKey{worker: number(a.body, "worker_id"), rank: int(number(a.body, "dp_rank"))}
}
