package admin

import (
	"context"
	"strings"

	"github.com/valyala/fasthttp"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/host/store"
	"github.com/routerd/routerd/internal/httpapi"
)

// access says who may call a route.
type access int

const (
	byToken access = iota
	public
)

// bodyKind says what a route reads.
type bodyKind int

const (
	noBody bodyKind = iota
	jsonBody
	moduleBody
)

const maxJSON = 1 << 20 // bytes of a JSON body

// route is one row of the table.
type route struct {
	method  string
	pattern string // segments; {name} is a name of the closed form, {ref} any text
	access  access
	body    bodyKind
	query   []param
	doc     string // one sentence
	in, out any    // a sample of the body and of the answer, for the documents
	status  []int  // of good answers
	handle  func(s *Server, ctx context.Context, x *exchange) error
}

// param is a query parameter.
type param struct{ name, doc string }

// mutates tells whether the route changes something.
func (r *route) mutates() bool { return r.method != fasthttp.MethodGet }

// bodyLimit is the largest body in bytes; 0 is none at all.
func (r *route) bodyLimit() int64 {
	switch r.body {
	case moduleBody:
		return store.MaxBytes
	case jsonBody:
		return maxJSON
	default:
		return 0
	}
}

// checkName refuses what does not have the closed form, where the route's name
// has one.
func (r *route) checkName(name string) error {
	if strings.Contains(r.pattern, "{name}") {
		return store.CheckName(name)
	}
	if strings.Contains(r.pattern, "{ref}") && (name == "" || len(name) > fleet.MaxNameBytes) {
		return &fleet.FieldError{Field: "name", Value: name, Allowed: "1 to 256 bytes"}
	}
	return nil
}

// find looks a raw path up. When the path is known but not the method, allowed
// lists the methods.
func (s *Server) find(method, path string) (r *route, name string, allowed []string) {
	all := s.now.Load().routes
	for i := range all {
		got, ok := httpapi.Match(all[i].pattern, path)
		if !ok {
			continue
		}
		if all[i].method == method || method == fasthttp.MethodHead && all[i].method == fasthttp.MethodGet {
			return &all[i], got, nil
		}
		allowed = append(allowed, all[i].method)
	}
	return nil, "", allowed
}

// noRoute says why a path has no route. What stands below a collection and is
// no name, such as "../x", is refused as a name.
func (s *Server) noRoute(path string, allowed []string) error {
	if len(allowed) > 0 {
		return &failure{
			Code: CodeUnsupported, Message: "the path does not take this method", Status: fasthttp.StatusMethodNotAllowed,
			Details: Details{Step: "route", Allowed: strings.Join(allowed, ", ")},
		}
	}
	for _, r := range s.now.Load().routes {
		prefix, isName := strings.CutSuffix(r.pattern, "{name}")
		rest, below := strings.CutPrefix(path, prefix)
		if !isName || !below {
			continue
		}
		first, verb, _ := strings.Cut(rest, "/")
		if store.CheckName(first) == nil && verb != "" && !strings.ContainsAny(verb, "/.%\\") {
			break // a verb that this version does not have
		}
		if err := store.CheckName(rest); err != nil {
			return err
		}
	}
	return &failure{Code: CodeNotFound, Message: "no such path", Details: Details{Step: "route"}}
}
