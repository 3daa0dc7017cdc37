package selection

import (
	"context"
	"errors"
)

var errUnsupported = errors.New("not supported")

func (s *Server) showOpenAPI(_ context.Context, x *exchange) error {
	return x.reply(200, map[string]any{})
}
