package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/url"
	"runtime/debug"

	"github.com/valyala/fasthttp"

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

// droppedBody marks, between boundBody and the handler, a request whose body is
// not read, with the reason. A caller's own is removed.
const (
	droppedBody = "Routerd-Dropped-Body"
	notAllowed  = "not allowed"
	tooLarge    = "too large"
	twoFramings = "two framings"
)

// boundBody says how large the body may be once the head is there. The body of
// a request that is refused by its head, above all one without the token, is
// not read: the handler answers at once and the connection ends.
func (s *Server) boundBody(h *fasthttp.RequestHeader) fasthttp.RequestConfig {
	h.Del(droppedBody)
	if framedTwice(h) {
		return dropBody(h, twoFramings)
	}
	length := h.ContentLength() // -1 is chunked
	if length != -1 && length <= 0 {
		return fasthttp.RequestConfig{}
	}
	x := &exchange{}
	err := s.locate(h, x)
	most := int64(0)
	if err == nil {
		most = min(x.route.bodyLimit(), s.now.Load().MaxBody)
	}
	switch {
	case err != nil || most == 0:
		return dropBody(h, notAllowed)
	case int64(length) > most:
		return dropBody(h, tooLarge)
	}
	return fasthttp.RequestConfig{MaxRequestBodySize: int(most)}
}

// dropBody has the body not read and the request refused for a reason.
func dropBody(h *fasthttp.RequestHeader, reason string) fasthttp.RequestConfig {
	h.SetContentLength(0)
	h.Del(fasthttp.HeaderExpect)
	h.Set(droppedBody, reason)
	return fasthttp.RequestConfig{}
}

// framedTwice tells whether the head has both Transfer-Encoding and
// Content-Length, of which fasthttp takes the former without a word.
func framedTwice(h *fasthttp.RequestHeader) bool {
	return len(h.Peek(fasthttp.HeaderTransferEncoding)) > 0 && httpapi.HasHeader(h.RawHeaders(), fasthttp.HeaderContentLength)
}

// refuseParse answers what cannot be read.
func (s *Server) refuseParse(rc *fasthttp.RequestCtx, err error) {
	endAfter(rc)
	rc.Response.Reset()
	answerFailure(rc, parseFailure(err))
}

// endAfter ends the connection after the answer, in a way that a client which
// still sends gets the answer.
func endAfter(rc *fasthttp.RequestCtx) {
	if c, ok := rc.Conn().(*httpapi.Conn); ok {
		c.Linger()
	}
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
		rc.Response.Reset()
		answerFailure(rc, f)
	}
	if len(rc.Request.Header.Peek(droppedBody)) > 0 {
		endAfter(rc)
		rc.SetConnectionClose()
	}
	if x.route != nil && x.route.mutates() {
		s.audit(x, f)
	}
}

func (s *Server) call(ctx context.Context, x *exchange) (err error) {
	defer func() {
		if p := recover(); p != nil {
			// The value is not Logged: it can hold anything.
			s.log.Error("admin handler panicked", slog.String("panic", fmt.Sprintf("%T", p)), slog.String("stack", string(debug.Stack())))
			err = httpapi.Internal()
		}
	}()
	h := &x.rc.Request.Header
	if err := s.locate(h, x); err != nil {
		return err
	}
	switch string(h.Peek(droppedBody)) {
	case "":
		return x.route.handle(s, ctx, x)
	case tooLarge:
		most := min(x.route.bodyLimit(), s.now.Load().MaxBody)
		return &failure{Code: CodeTooLarge, Message: "the request's body is too large", Details: Details{Step: "read", Allowed: fmt.Sprintf("%d bytes", most)}}
	case twoFramings:
		return httpapi.Invalid("head", "it has both Transfer-Encoding and Content-Length", "one of them")
	default:
		return httpapi.Invalid("body", "this path takes none", "an empty body")
	}
}

// locate checks everything about a request but its body: token, path, name,
// query.
func (s *Server) locate(h *fasthttp.RequestHeader, x *exchange) (err error) {
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

func answerFailure(rc *fasthttp.RequestCtx, f *failure) {
	answer(rc, f.HTTPStatus(), f.Body())
	switch {
	case f.Code == CodeUnauthorized:
		rc.Response.Header.Set(fasthttp.HeaderWWWAuthenticate, `Bearer realm="routerd admin"`)
	case f.Status == fasthttp.StatusMethodNotAllowed:
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
		slog.String("name", httpapi.Clip(x.name)),
		slog.String("digest", x.digest),
		slog.Int("status", x.rc.Response.StatusCode()),
	}
	if f != nil {
		attrs = append(attrs, slog.String("code", string(f.Code)))
	}
	s.log.LogAttrs(context.Background(), slog.LevelInfo, "admin change", attrs...)
}
