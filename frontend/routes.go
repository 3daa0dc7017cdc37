package frontend

import (
	"bytes"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/valyala/fasthttp"
)

// route is one path of the surface. Prefix tells that the path goes on.
type route struct {
	name   string // in metrics
	prefix bool
	allow  []string // methods
	handle func(x *exchange) error
	always bool // also while the server is not ready
}

// routeTable lists everything that the frontend answers, by path.
func (s *Server) routeTable() map[string]*route {
	post, get := []string{fasthttp.MethodPost}, []string{fasthttp.MethodGet, fasthttp.MethodHead}
	return map[string]*route{
		"/v1/chat/completions": {name: "chat", allow: post, handle: s.chatCompletions},
		"/v1/completions":      {name: "completions", allow: post, handle: s.completions},
		"/v1/models":           {name: "models", allow: get, handle: s.models},
		"/v1/models/":          {name: "model", allow: get, handle: s.model, prefix: true},
		"/health":              {name: "health", allow: get, handle: s.health, always: true},
	}
}

// handle serves one request. A panic costs the request, never the process.
func (s *Server) handle(ctx *fasthttp.RequestCtx) {
	x := s.open(ctx)
	if ctx.Request.BodyStream() == nil {
		x.arrived()
	}
	defer func() {
		if p := recover(); p != nil {
			// The value of a panic may quote the request; the stack does not.
			s.log.Error("handler panicked", "request", x.id, "kind", fmt.Sprintf("%T", p), "stack", string(debug.Stack()))
			x.fail(errPanic)
		}
		x.leaveBody()
		if !x.streaming {
			x.close()
		}
	}()
	x.closing = x.outdated()
	if err := s.dispatch(x); err != nil {
		x.fail(err)
	}
	if x.closing {
		ctx.SetConnectionClose()
	}
}

// dispatch finds the route by the raw path: model names hold slashes, and a
// cleaned path would decode them.
func (s *Server) dispatch(x *exchange) error {
	h := &x.ctx.Request.Header
	if h.IsConnect() {
		x.closing = true // what follows would not be a request
		return errConnect
	}
	r := s.find(x.path())
	if r == nil {
		return &routeError{}
	}
	x.route = r
	if !slices.Contains(r.allow, string(h.Method())) {
		x.allow = strings.Join(r.allow, ", ")
		return &routeError{method: string(h.Method()), allow: x.allow}
	}
	if framedTwice(h) {
		x.closing = true
		return errBothFramings
	}
	if x.cfg.tooLong(h) {
		x.closing = true
		return &parseError{fasthttp.ErrBodyTooLarge}
	}
	if !r.always {
		switch {
		case s.calls.isDraining():
			return errDraining
		case s.notReady.Load():
			return errNotReady
		}
	}
	return r.handle(x)
}

func (s *Server) find(path []byte) *route {
	if r := s.routes[string(path)]; r != nil && !r.prefix {
		return r
	}
	if i := bytes.LastIndexByte(path[:min(len(path), len("/v1/models/"))], '/'); i >= 0 && i+1 < len(path) {
		if r := s.routes[string(path[:i+1])]; r != nil && r.prefix {
			return r
		}
	}
	return nil
}

// health tells whether the server takes requests.
func (s *Server) health(x *exchange) error {
	switch {
	case s.calls.isDraining():
		return errDraining
	case s.notReady.Load():
		return errNotReady
	}
	x.ctx.SetContentType("application/json")
	x.ctx.SetBodyString(`{"status":"ok"}`)
	return nil
}
