package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/url"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/valyala/fasthttp"

	"github.com/routerd/routerd/host/store"
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

// split cuts a raw request URI, of which nothing is decoded, into path and
// query.
func split(h *fasthttp.RequestHeader) (path, query string) {
	path, query, _ = strings.Cut(string(h.RequestURI()), "?")
	return path, query
}

// admitted tells whether the caller may use what the path stands for: a public
// route, or anything with the token.
func (s *Server) admitted(h *fasthttp.RequestHeader) bool {
	path, _ := split(h)
	r, _, _ := s.find(string(h.Method()), path)
	return r != nil && r.access == public || s.authorised(h)
}

// boundBody says how large the body may be once the head is there. Who lacks
// the token gets none of theirs read.
func (s *Server) boundBody(h *fasthttp.RequestHeader) fasthttp.RequestConfig {
	path, _ := split(h)
	r, _, _ := s.find(string(h.Method()), path)
	most := int64(1) // 0 would be the server's default
	if r != nil && s.admitted(h) {
		switch r.body {
		case moduleBody:
			most = store.MaxBytes
		case jsonBody:
			most = maxJSON
		}
	}
	return fasthttp.RequestConfig{MaxRequestBodySize: int(min(most, s.cfg.MaxBody))}
}

// refuseParse answers what cannot be read.
func (s *Server) refuseParse(rc *fasthttp.RequestCtx, err error) {
	f := parseFailure(err)
	if f.Code == CodeTooLarge && f.status == 0 && !s.admitted(&rc.Request.Header) {
		f = unauthorised()
	}
	if c, ok := rc.Conn().(*conn); ok {
		c.lingers.Store(true)
	}
	rc.Response.Reset()
	answerFailure(rc, f)
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
		if f.Code == CodeInternal {
			s.log.Error("admin request failed", slog.String("path", clip(string(rc.Request.Header.RequestURI()))), slog.String("err", redact(err.Error())))
		}
		rc.Response.Reset()
		answerFailure(rc, f)
	}
	if x.route != nil && x.route.mutates() {
		s.audit(x, f)
	}
}

func (s *Server) call(ctx context.Context, x *exchange) (err error) {
	defer func() {
		if p := recover(); p != nil {
			// The value is not logged: it can hold anything.
			s.log.Error("admin handler panicked", slog.String("panic", fmt.Sprintf("%T", p)), slog.String("stack", string(debug.Stack())))
			err = &failure{Code: CodeInternal, Message: "the router could not do this; its log says why"}
		}
	}()
	h := &x.rc.Request.Header
	if !s.admitted(h) {
		return unauthorised()
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
	if x.query, err = parseQuery(query, r.query); err != nil {
		return err
	}
	return r.handle(s, ctx, x)
}

// parseQuery takes only the parameters of the route, each once.
func parseQuery(raw string, known []param) (url.Values, error) {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return nil, invalid("query", "it is not well-formed", "name=value pairs, joined by &")
	}
	names := make([]string, 0, len(known))
	for _, p := range known {
		names = append(names, p.name)
	}
	allowed := "no parameters"
	if len(names) > 0 {
		allowed = "the parameters " + strings.Join(names, ", ")
	}
	for name, v := range values {
		if !slices.Contains(names, name) {
			return nil, invalid("query parameter "+clip(name), "is not known", allowed)
		}
		if len(v) > 1 {
			return nil, invalid("query parameter "+name, "is given twice", "once")
		}
	}
	return values, nil
}

// flag reads a query parameter that is true or false.
func (x *exchange) flag(name string) (bool, error) {
	switch v := x.query.Get(name); v {
	case "", "false", "0":
		return false, nil
	case "true", "1":
		return true, nil
	default:
		return false, invalid("query parameter "+name, fmt.Sprintf("%q is not allowed", clip(v)), "true, false, 1, 0")
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

func answerFailure(rc *fasthttp.RequestCtx, f *failure) {
	b, err := json.Marshal(map[string]*failure{"error": f})
	if err != nil {
		b = []byte(`{"error":{"code":"internal","message":"the error cannot be written","details":{}}}`)
	}
	answer(rc, f.httpStatus(), b)
	switch {
	case f.Code == CodeUnauthorized:
		rc.Response.Header.Set(fasthttp.HeaderWWWAuthenticate, `Bearer realm="routerd admin"`)
	case f.status == fasthttp.StatusMethodNotAllowed:
		rc.Response.Header.Set(fasthttp.HeaderAllow, f.Details.Allowed)
	}
}

func unauthorised() *failure {
	return &failure{
		Code: CodeUnauthorized, Message: "the bearer token is missing or wrong",
		Details: Details{Step: "authorize", Allowed: "Authorization: Bearer TOKEN, as in data_dir/admin.token"},
	}
}

// audit writes who changed what, and how it ended.
func (s *Server) audit(x *exchange, f *failure) {
	attrs := []slog.Attr{
		slog.String("who", x.rc.RemoteAddr().String()),
		slog.String("what", x.route.method+" "+x.route.pattern),
		slog.String("name", clip(x.name)),
		slog.String("digest", x.digest),
		slog.Int("status", x.rc.Response.StatusCode()),
	}
	if f != nil {
		attrs = append(attrs, slog.String("code", string(f.Code)))
	}
	s.log.LogAttrs(context.Background(), slog.LevelInfo, "admin change", attrs...)
}
