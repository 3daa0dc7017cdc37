package selection

import "context"

func (s *Server) overlapScores(_ context.Context, x *exchange) error { return errUnsupported }

func (s *Server) query(_ context.Context, x *exchange) error { return errUnsupported }

func (s *Server) queryByHash(_ context.Context, x *exchange) error { return errUnsupported }

func (s *Server) dump(_ context.Context, x *exchange) error { return errUnsupported }
