package selection

import "context"

func (s *Server) reserve(_ context.Context, x *exchange) error { return errUnsupported }

func (s *Server) prefillComplete(_ context.Context, x *exchange) error { return errUnsupported }

func (s *Server) outputBlock(_ context.Context, x *exchange) error { return errUnsupported }

func (s *Server) free(_ context.Context, x *exchange) error { return errUnsupported }
