package selection

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/core/reserve"
	"github.com/routerd/routerd/internal/apiserver"
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

// bodyLimit is the largest body of a request, by its head.
func (s *Server) bodyLimit(h *fasthttp.RequestHeader) int64 {
	x := &exchange{cfg: s.cfg.Load()}
	if err := s.locate(h, x); err != nil || x.route.body == noBody {
		return 0
	}
	return x.cfg.MaxBody
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
		s.server.Refuse(rc, f)
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
	case err == nil && c.watched.Look():
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
	defer apiserver.Recover(s.log, &err)
	h := &x.rc.Request.Header
	if err := s.locate(h, x); err != nil {
		return err
	}
	if err := s.server.Body(h); err != nil {
		return err
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
		return apiserver.Unauthorised("selection.token_file")
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
	x.query, err = httpapi.ParseQuery(query, r.queryNames())
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
