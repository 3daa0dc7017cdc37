package selection

import "context"

// health answers while the process lives.
func (s *Server) health(_ context.Context, x *exchange) error {
	return x.reply(200, statusAnswer{"ok"})
}
