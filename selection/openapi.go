package selection

import (
	"context"
)

func (s *Server) showOpenAPI(_ context.Context, x *exchange) error {
	return x.reply(200, map[string]any{})
}
