package sim

import (
	"context"
	"errors"

	"github.com/valyala/fasthttp"
)

// exchange is one HTTP request on its way through the engine. It belongs to the
// connection's goroutine.
type exchange struct {
	*fasthttp.RequestCtx
	engine *Engine
	// fault takes effect later, at its after_chunks; nil for none.
	fault *fault
	// ctx ends when the client goes, the engine restarts or closes.
	ctx     context.Context //nolint:containedctx // an exchange is one request, passed down whole
	cancel  context.CancelCauseFunc
	unwatch func()
}

// begin starts to watch the client. finish must follow.
func (x *exchange) begin() {
	if x.ctx != nil {
		return
	}
	x.ctx, x.cancel = context.WithCancelCause(x.engine.era())
	x.unwatch = x.engine.watch.add(x.Conn(), func() { x.cancel(errClientGone) })
}

// finish stops watching. It may be called without begin, and twice.
func (x *exchange) finish() {
	if x.ctx == nil {
		return
	}
	x.unwatch()
	x.cancel(nil)
}

// clientGone tells whether the request ended because its client went away.
func (x *exchange) clientGone() bool {
	return errors.Is(context.Cause(x.ctx), errClientGone)
}

// hangUp closes the connection without an answer.
func (x *exchange) hangUp() {
	x.finish()
	// The answer that fasthttp still writes fails on the closed connection.
	if err := x.Conn().Close(); err != nil {
		x.engine.log.Debug("close connection", "err", err)
	}
}

// reply sends a JSON body.
func (x *exchange) reply(status int, v any) {
	x.Response.SetStatusCode(status)
	x.Response.Header.SetContentType("application/json")
	x.Response.SetBodyRaw(encodeJSON(v))
}

func (x *exchange) fail(err error) { writeError(x.RequestCtx, err) }
