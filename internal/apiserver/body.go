package apiserver

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"runtime/debug"
	"strconv"

	"github.com/valyala/fasthttp"

	"github.com/routerd/routerd/internal/httpapi"
)

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
	switch most := s.api.BodyLimit(h); {
	case most == 0:
		return dropBody(h, notAllowed)
	case int64(length) > most:
		return dropBody(h, tooLarge)
	default:
		return fasthttp.RequestConfig{MaxRequestBodySize: int(most)}
	}
}

// framedTwice tells whether the head has both Transfer-Encoding and
// Content-Length, of which fasthttp takes the former without a word.
func framedTwice(h *fasthttp.RequestHeader) bool {
	return len(h.Peek(fasthttp.HeaderTransferEncoding)) > 0 && httpapi.HasHeader(h.RawHeaders(), fasthttp.HeaderContentLength)
}

// dropBody has the body not read and the request refused for a reason.
func dropBody(h *fasthttp.RequestHeader, reason string) fasthttp.RequestConfig {
	h.SetContentLength(0)
	h.Del(fasthttp.HeaderExpect)
	h.Set(droppedBody, reason)
	return fasthttp.RequestConfig{}
}

// Body refuses a request whose body was not read: it is larger than most, or none
// is taken, or nobody knows where it ends. Handlers that the API's own checks let
// past call it first.
func (s *Server) Body(h *fasthttp.RequestHeader) error {
	switch string(h.Peek(droppedBody)) {
	case "":
		return nil
	case tooLarge:
		return &httpapi.Failure{
			Code: httpapi.CodeTooLarge, Message: "the request's body is too large",
			Details: httpapi.Details{Step: "read", Allowed: strconv.FormatInt(s.api.BodyLimit(h), 10) + " bytes"},
		}
	case twoFramings:
		return httpapi.Invalid("head", "it has both Transfer-Encoding and Content-Length", "one of them")
	}
	return httpapi.Invalid("body", "this path takes none", "an empty body")
}

// handle answers a request. The connection of one whose body was not read ends.
func (s *Server) handle(rc *fasthttp.RequestCtx) {
	s.api.Handle(rc)
	if len(rc.Request.Header.Peek(droppedBody)) > 0 {
		linger(rc)
		rc.SetConnectionClose()
	}
}

// linger has the connection end, after the answer, in a way that a caller which
// still sends gets the answer.
func linger(rc *fasthttp.RequestCtx) {
	if c, ok := rc.Conn().(*httpapi.Conn); ok {
		c.Linger()
	}
}

// refuseParse answers what cannot be read.
func (s *Server) refuseParse(rc *fasthttp.RequestCtx, err error) {
	linger(rc)
	f := parseFailure(err)
	s.Refuse(rc, f)
	if s.api.Unreadable != nil {
		s.api.Unreadable(f)
	}
}

// Refuse makes the answer that of an error, whatever it was before.
func (s *Server) Refuse(rc *fasthttp.RequestCtx, f *httpapi.Failure) {
	rc.Response.Reset()
	rc.SetStatusCode(f.HTTPStatus())
	rc.SetContentType("application/json")
	rc.SetBody(append(f.Body(), '\n'))
	h := &rc.Response.Header
	h.Set(fasthttp.HeaderCacheControl, "no-store")
	h.Set(fasthttp.HeaderXContentTypeOptions, "nosniff")
	switch {
	case f.Code == httpapi.CodeUnauthorized:
		h.Set(fasthttp.HeaderWWWAuthenticate, `Bearer realm="`+s.api.Realm+`"`)
	case f.Status == fasthttp.StatusMethodNotAllowed:
		h.Set(fasthttp.HeaderAllow, f.Details.Allowed)
	}
	if f.RetryAfter > 0 {
		h.Set(fasthttp.HeaderRetryAfter, strconv.FormatFloat(math.Ceil(f.RetryAfter.Seconds()), 'f', 0, 64))
	}
}

// Recover makes a handler's panic its error, where it is deferred, and logs the
// panic's type and the stack. The value is not logged: it can hold anything.
func Recover(log *slog.Logger, err *error) {
	if p := recover(); p != nil {
		log.Error("handler panicked", slog.String("panic", fmt.Sprintf("%T", p)), slog.String("stack", string(debug.Stack())))
		*err = httpapi.Internal()
	}
}

// Unauthorised asks for the bearer token, which stands in the named place.
func Unauthorised(where string) *httpapi.Failure {
	return &httpapi.Failure{
		Code: httpapi.CodeUnauthorized, Message: "the bearer token is missing or wrong",
		Details: httpapi.Details{Step: "authorize", Allowed: "Authorization: Bearer TOKEN, as in " + where},
	}
}

// parseFailure is what a request that cannot be read gets. The texts are
// constants: the error's own can hold parts of the request.
func parseFailure(err error) *httpapi.Failure {
	var small *fasthttp.ErrSmallBuffer
	var timeout net.Error
	f := &httpapi.Failure{Code: httpapi.CodeInvalid, Message: "the request is not well-formed HTTP/1.1", Details: httpapi.Details{Step: "read"}}
	switch {
	case errors.Is(err, fasthttp.ErrBodyTooLarge):
		f.Code, f.Message = httpapi.CodeTooLarge, "the request's body is too large"
	case errors.As(err, &small):
		f.Code, f.Message, f.Status = httpapi.CodeTooLarge, "the request's head is too large", fasthttp.StatusRequestHeaderFieldsTooLarge
		f.Details.Allowed = "32 KiB"
	case errors.As(err, &timeout) && timeout.Timeout():
		f.Message, f.Status = "the request did not arrive whole in time", fasthttp.StatusRequestTimeout
	}
	return f
}
