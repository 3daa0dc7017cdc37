package selection

import "context"

func (s *Server) putWorker(_ context.Context, x *exchange) error { return errUnsupported }

func (s *Server) listWorkers(_ context.Context, x *exchange) error { return errUnsupported }

func (s *Server) patchWorker(_ context.Context, x *exchange) error { return errUnsupported }

func (s *Server) deleteWorker(_ context.Context, x *exchange) error { return errUnsupported }
