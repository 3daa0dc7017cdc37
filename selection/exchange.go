package selection

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/url"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/core/reserve"
	"github.com/routerd/routerd/internal/httpapi"
)

// exchange is one request and its answer. It is owned by the handler and dies
// with it.
type exchange struct {
	rc          *fasthttp.RequestCtx
	cfg         *Config
	route       *route
	id          string // of the path, decoded; empty where the route has none
	query       url.Values
	at          time.Time            // when the request was there whole
	reservation *reserve.Reservation // that the answer carries; nil for none
}

// booked hands a booking to the exchange: it is released if its answer cannot be
// handed whole to the caller.
func (x *exchange) booked(sel *core.Selection) { x.reservation = sel.Reservation }

// conn is the connection of an exchange; nil under a listener that is not this
// server's.
func (x *exchange) conn() *conn {
	if c, ok := x.rc.Conn().(*httpapi.Conn); ok {
		own, _ := c.NetConn().(*conn)
		return own
	}
	return nil
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
	if len(h.Peek(fasthttp.HeaderTransferEncoding)) > 0 && httpapi.HasHeader(h.RawHeaders(), fasthttp.HeaderContentLength) {
		return dropBody(h, twoFramings)
	}
	length := h.ContentLength() // -1 is chunked
	if length != -1 && length <= 0 {
		return fasthttp.RequestConfig{}
	}
	x := &exchange{cfg: s.cfg.Load()}
	switch err := s.locate(h, x); {
	case err != nil || x.route.body == noBody:
		return dropBody(h, notAllowed)
	case int64(length) > x.cfg.MaxBody:
		return dropBody(h, tooLarge)
	}
	return fasthttp.RequestConfig{MaxRequestBodySize: int(x.cfg.MaxBody)}
}

// dropBody has the body not read and the request refused for a reason.
func dropBody(h *fasthttp.RequestHeader, reason string) fasthttp.RequestConfig {
	h.SetContentLength(0)
	h.Del(fasthttp.HeaderExpect)
	h.Set(droppedBody, reason)
	return fasthttp.RequestConfig{}
}

// refuseParse answers what cannot be read.
func (s *Server) refuseParse(rc *fasthttp.RequestCtx, err error) {
	linger(rc)
	f := parseFailure(err)
	answerFailure(rc, f)
	s.metrics.count(nil, f.HTTPStatus(), 0)
}

// linger has the connection end, after the answer, in a way that a caller which
// still sends gets the answer.
func linger(rc *fasthttp.RequestCtx) {
	if c, ok := rc.Conn().(*httpapi.Conn); ok {
		c.Linger()
	}
}

// handle finds the route, checks the token, runs the handler and writes its
// error.
func (s *Server) handle(rc *fasthttp.RequestCtx) {
	x := &exchange{rc: rc, cfg: s.cfg.Load(), at: time.Now()}
	if c := x.conn(); c != nil {
		c.delivered() // the answer before
	}
	err := s.call(x)
	if x.reservation != nil {
		err = s.deliver(x, err)
	}
	if err != nil {
		f := classify(err)
		if f.Logged {
			s.log.Error("request of the selection service failed", slog.String("path", httpapi.Clip(string(rc.Path()))), slog.String("err", httpapi.Redact(err.Error())))
		}
		answerFailure(rc, f)
	}
	if len(rc.Request.Header.Peek(droppedBody)) > 0 {
		linger(rc)
		rc.SetConnectionClose()
	}
	s.metrics.count(x.route, rc.Response.StatusCode(), time.Since(x.at))
}

// deliver has the connection see to the answer of a booking. Where there is no
// answer, or nobody to read it, the booking is released.
func (s *Server) deliver(x *exchange, err error) error {
	c := x.conn()
	switch {
	case err == nil && c == nil: // no connection of this server's: the answer goes out somehow
		return nil
	case err == nil && c.watched.Gone():
		err = errCallerGone
	case err == nil:
		// A write deadline, here the connection's own, has the answer flushed at
		// once, also where the caller has sent its next request already.
		err = x.rc.SetWriteDeadline(time.Time{})
	}
	if err != nil {
		s.metrics.release(x.reservation)
		return err
	}
	c.carry(x.reservation)
	return nil
}

func (s *Server) call(x *exchange) (err error) {
	defer func() {
		if p := recover(); p != nil {
			// The value is not logged: it can hold anything.
			s.log.Error("handler of the selection service panicked", slog.String("panic", fmt.Sprintf("%T", p)), slog.String("stack", string(debug.Stack())))
			err = httpapi.Internal()
		}
	}()
	h := &x.rc.Request.Header
	if err := s.locate(h, x); err != nil {
		return err
	}
	switch string(h.Peek(droppedBody)) {
	case "":
	case tooLarge:
		return &httpapi.Failure{Code: httpapi.CodeTooLarge, Message: "the request's body is too large", Details: httpapi.Details{Step: "read", Allowed: strconv.FormatInt(x.cfg.MaxBody, 10) + " bytes"}}
	case twoFramings:
		return httpapi.Invalid("head", "it has both Transfer-Encoding and Content-Length", "one of them")
	default:
		return httpapi.Invalid("body", "this path takes none", "an empty body")
	}
	if x.route.body == jsonBody && len(x.rc.PostBody()) > 0 && !httpapi.IsJSON(string(h.ContentType())) {
		return &httpapi.Failure{
			Code: httpapi.CodeUnsupported, Status: fasthttp.StatusUnsupportedMediaType, Message: "the body is not declared to be JSON",
			Details: httpapi.Details{Step: "read", Item: fasthttp.HeaderContentType, Allowed: "application/json"},
		}
	}
	calls := s.calls
	if x.route.waits {
		calls = s.waits
	}
	ctx, cancel := context.WithCancelCause(calls)
	defer cancel(nil)
	if c := x.conn(); c != nil {
		unregister, ok := c.watched.OnGone(func() { cancel(errCallerGone) })
		if !ok {
			return errCallerGone
		}
		defer unregister()
	}
	return x.route.handle(s, ctx, x)
}

// errCallerGone ends a call whose caller has gone.
var errCallerGone = errors.New("the caller has gone")

// locate checks everything about a request but its body: token, path, query.
func (s *Server) locate(h *fasthttp.RequestHeader, x *exchange) (err error) {
	path, query := httpapi.Split(string(h.RequestURI()))
	r, id, allowed := s.table.find(string(h.Method()), path)
	if x.cfg.Token != "" && (r == nil || !r.public) && !httpapi.BearerIs(h.PeekAll(fasthttp.HeaderAuthorization), x.cfg.Token) {
		return unauthorised()
	}
	switch {
	case r == nil && allowed != nil:
		return &httpapi.Failure{
			Code: httpapi.CodeUnsupported, Message: "method not allowed", Status: fasthttp.StatusMethodNotAllowed,
			Details: httpapi.Details{Step: "route", Allowed: strings.Join(allowed, ", ")},
		}
	case r == nil:
		return &httpapi.Failure{Code: httpapi.CodeNotFound, Message: "route not found", Details: httpapi.Details{Step: "route"}}
	}
	x.route, x.id = r, id
	names := make([]string, 0, len(r.query))
	for _, p := range r.query {
		names = append(names, p.name)
	}
	x.query, err = httpapi.ParseQuery(query, names)
	return err
}

// reply answers with JSON.
func (x *exchange) reply(status int, body any) error {
	b, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("encode answer: %w", err)
	}
	x.write(status, b)
	return nil
}

// write answers with a JSON text, which it takes over.
func (x *exchange) write(status int, body []byte) {
	x.rc.SetStatusCode(status)
	x.rc.SetContentType(contentJSON)
	x.rc.Response.SetBodyRaw(body)
}

const contentJSON = "application/json"

func answerFailure(rc *fasthttp.RequestCtx, f *httpapi.Failure) {
	rc.Response.Reset()
	rc.SetStatusCode(f.HTTPStatus())
	rc.SetContentType(contentJSON)
	rc.SetBody(f.Body())
	switch {
	case f.Code == httpapi.CodeUnauthorized:
		rc.Response.Header.Set(fasthttp.HeaderWWWAuthenticate, `Bearer realm="routerd selection"`)
	case f.Status == fasthttp.StatusMethodNotAllowed:
		rc.Response.Header.Set(fasthttp.HeaderAllow, f.Details.Allowed)
	}
	if f.RetryAfter > 0 {
		rc.Response.Header.Set(fasthttp.HeaderRetryAfter, strconv.FormatFloat(math.Ceil(f.RetryAfter.Seconds()), 'f', 0, 64))
	}
}
