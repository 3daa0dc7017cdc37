package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/url"

	"github.com/valyala/fasthttp"

	"github.com/routerd/routerd/internal/apiserver"
	"github.com/routerd/routerd/internal/httpapi"
)

// exchange is one request and its answer. It is owned by the handler and dies
// with it.
type exchange struct {
	rc     *fasthttp.RequestCtx
	route  *route
	name   string // of the path; empty where the route has none
	query  url.Values
	digest string // what a change was about, for the audit line
}

// split cuts a raw request URI into path and query, see httpapi.Split.
func split(h *fasthttp.RequestHeader) (path, query string) {
	return httpapi.Split(string(h.RequestURI()))
}

// admitted tells whether the caller may use what the path stands for: a public
// route, or anything with the token.
func (s *Server) admitted(h *fasthttp.RequestHeader) bool {
	path, _ := split(h)
	r, _, _ := s.find(string(h.Method()), path)
	return r != nil && r.access == public || s.authorised(h)
}

// bodyLimit is the largest body of a request, by its head.
func (s *Server) bodyLimit(h *fasthttp.RequestHeader) int64 {
	x := &exchange{}
	if err := s.locate(h, x); err != nil {
		return 0
	}
	return min(x.route.bodyLimit(), s.now.Load().MaxBody)
}

// handle finds the route, checks the token, runs the handler and writes its
// error.
func (s *Server) handle(ctx context.Context, rc *fasthttp.RequestCtx) {
	ctx, cancel := context.WithTimeout(ctx, callPatience)
	defer cancel()
	x := &exchange{rc: rc}
	err := s.call(ctx, x)
	var f *failure
	if err != nil {
		f = classify(err)
		if f.Logged {
			path, _ := split(&rc.Request.Header)
			s.log.Error("admin request failed", slog.String("path", httpapi.Clip(path)), slog.String("err", httpapi.Redact(err.Error())))
		}
		s.server.Refuse(rc, f)
	}
	if x.route != nil && x.route.mutates() {
		s.audit(x, f)
	}
}

func (s *Server) call(ctx context.Context, x *exchange) (err error) {
	defer apiserver.Recover(s.log, &err)
	h := &x.rc.Request.Header
	if err := s.locate(h, x); err != nil {
		return err
	}
	if err := s.server.Body(h); err != nil {
		return err
	}
	return x.route.handle(s, ctx, x)
}

// locate checks everything about a request but its body: token, path, name,
// query.
func (s *Server) locate(h *fasthttp.RequestHeader, x *exchange) (err error) {
	if !s.admitted(h) {
		return apiserver.Unauthorised("data_dir/admin.token")
	}
	path, query := split(h)
	r, name, allowed := s.find(string(h.Method()), path)
	if r == nil {
		return s.noRoute(path, allowed)
	}
	x.route, x.name = r, name
	if err := r.checkName(name); err != nil {
		return err
	}
	names := make([]string, 0, len(r.query))
	for _, p := range r.query {
		names = append(names, p.name)
	}
	x.query, err = httpapi.ParseQuery(query, names)
	return err
}

// flag reads a query parameter that is true or false; false where it is not given.
func (x *exchange) flag(name string) (bool, error) {
	if !x.query.Has(name) {
		return false, nil
	}
	switch v := x.query.Get(name); v {
	case "false", "0":
		return false, nil
	case "true", "1":
		return true, nil
	default:
		return false, httpapi.Invalid("query parameter "+name, fmt.Sprintf("%q is not allowed", httpapi.Clip(v)), "true, false, 1, 0")
	}
}

// reply answers with JSON.
func (x *exchange) reply(status int, body any) error {
	b, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("encode answer: %w", err)
	}
	answer(x.rc, status, b)
	return nil
}

func answer(rc *fasthttp.RequestCtx, status int, body []byte) {
	rc.SetStatusCode(status)
	rc.SetContentType("application/json")
	rc.Response.Header.Set(fasthttp.HeaderCacheControl, "no-store")
	rc.Response.Header.Set(fasthttp.HeaderXContentTypeOptions, "nosniff")
	rc.SetBody(append(body, '\n'))
}

// audit writes who changed what, and how it ended.
func (s *Server) audit(x *exchange, f *failure) {
	attrs := []slog.Attr{
		slog.String("who", x.rc.RemoteAddr().String()),
		slog.String("what", x.route.method+" "+x.route.pattern),
		slog.String("name", httpapi.Clip(x.name)),
		slog.String("digest", x.digest),
		slog.Int("status", x.rc.Response.StatusCode()),
	}
	if f != nil {
		attrs = append(attrs, slog.String("code", string(f.Code)))
	}
	s.log.LogAttrs(context.Background(), slog.LevelInfo, "admin change", attrs...)
}
