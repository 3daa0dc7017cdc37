package selection

import "context"

func (s *Server) doSelect(_ context.Context, x *exchange) error { return errUnsupported }

func (s *Server) doSelectAndReserve(_ context.Context, x *exchange) error { return errUnsupported }
