package selection

import (
	"github.com/valyala/fasthttp"

	"github.com/routerd/routerd/core"
)

// Handle answers one request that does not come over a connection.
func (s *Server) Handle(rc *fasthttp.RequestCtx) { s.handle(rc) }

// Bodies reads bodies into buffers that it uses again.
type Bodies struct{ bodies }

// Select reads the body of a selection and hands it to f, which keeps nothing of it.
func (b *Bodies) Select(raw []byte, f func(*core.Request)) error {
	body, err := b.read(raw, selectSet)
	if err != nil {
		return err
	}
	defer b.done(body)
	req, err := body.selection(core.Query)
	if err != nil {
		return err
	}
	f(req)
	return nil
}
