package selection

import "context"

func (s *Server) loads(_ context.Context, x *exchange) error { return errUnsupported }

func (s *Server) potentialLoads(_ context.Context, x *exchange) error { return errUnsupported }
