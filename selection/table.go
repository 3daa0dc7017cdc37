package selection

import (
	"strings"

	"github.com/valyala/fasthttp"

	"github.com/routerd/routerd/internal/httpapi"
)

// table finds routes by their path.
type table struct {
	all   []route
	fixed map[string][]*route // those whose pattern stands for itself
	named []*route            // the others
}

func newTable(all []route) table {
	t := table{all: all, fixed: map[string][]*route{}}
	for i := range all {
		r := &all[i]
		if strings.Contains(r.pattern, "{") {
			t.named = append(t.named, r)
			continue
		}
		t.fixed[r.pattern] = append(t.fixed[r.pattern], r)
	}
	return t
}

// find looks a raw path up. When the path is known but not the method, allowed
// lists the methods. A path that ends where a name should stand is unknown.
func (t *table) find(method, path string) (r *route, id string, allowed []string) {
	for _, r := range t.fixed[path] {
		if r.takes(method) {
			return r, "", nil
		}
		allowed = append(allowed, r.method)
	}
	if allowed != nil {
		return nil, "", allowed
	}
	for _, r := range t.named {
		id, ok := httpapi.Match(r.pattern, path)
		if !ok || id == "" && strings.HasSuffix(r.pattern, "}") {
			continue
		}
		if r.takes(method) {
			return r, id, nil
		}
		allowed = append(allowed, r.method)
	}
	return nil, "", allowed
}

// queryNames are the names of the parameters that the route knows.
func (r *route) queryNames() []string {
	var names []string
	for _, p := range r.query {
		names = append(names, p.name)
	}
	return names
}

// takes tells whether a route answers a method; HEAD is GET without its body.
func (r *route) takes(method string) bool {
	return r.method == method || method == fasthttp.MethodHead && r.method == fasthttp.MethodGet
}
