package selection

import "context"

func (s *Server) replicaSync(_ context.Context, x *exchange) error { return errUnsupported }

func (s *Server) showOpenAPI(_ context.Context, x *exchange) error { return errUnsupported }
