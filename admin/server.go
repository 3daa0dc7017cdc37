package admin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/internal/apiserver"
)

const (
	writePatience = time.Minute     // for a client to take its answer
	callPatience  = 2 * time.Minute // for one change, such as compiling modules
)

// Config sets the server up.
type Config struct {
	// MaxBody bounds request bodies in bytes; a module has its own bound as well.
	MaxBody int64
	// MetricsPublic opens /metrics to callers without a token.
	MetricsPublic bool
	// Token is the bearer token of every route that is not public.
	Token string
	// ReadTimeout is how long a request may take to arrive whole; 0 is 30 s.
	ReadTimeout time.Duration
}

// DefaultConfig is a configuration that only lacks its token.
func DefaultConfig() Config { return Config{MaxBody: 16 << 20, ReadTimeout: apiserver.ReadPatience} }

// Validate refuses what is out of range.
func (c Config) Validate() error {
	if c.MaxBody < 1<<10 || c.MaxBody > apiserver.MaxBody {
		return &fleet.FieldError{Field: "admin.max_body", Value: fmt.Sprint(c.MaxBody), Allowed: "1024 to 1073741824"}
	}
	if c.ReadTimeout < 0 || c.ReadTimeout > time.Hour {
		return &fleet.FieldError{Field: "admin read timeout", Value: c.ReadTimeout.String(), Allowed: "0s to 1h"}
	}
	return checkToken(c.Token)
}

// Server is the admin API. Its methods are safe for concurrent use.
type Server struct {
	now    atomic.Pointer[settings]
	parts  Parts
	log    *slog.Logger
	server *apiserver.Server
}

// New makes a server. Nothing runs before Serve.
func New(cfg Config, parts Parts, log *slog.Logger) (*Server, error) {
	if cfg.ReadTimeout == 0 {
		cfg.ReadTimeout = apiserver.ReadPatience
	}
	if err := errors.Join(cfg.Validate(), parts.validate()); err != nil {
		return nil, fmt.Errorf("admin configuration: %w", err)
	}
	s := &Server{parts: parts, log: log}
	s.now.Store(&settings{cfg, routes(cfg.MetricsPublic)})
	calls, cancel := context.WithCancelCause(context.Background())
	s.server = apiserver.New(apiserver.API{
		Handle: func(rc *fasthttp.RequestCtx) { s.handle(calls, rc) }, BodyLimit: s.bodyLimit, Realm: "routerd admin",
		Cancel:      func() { cancel(errStopped) },
		ReadTimeout: cfg.ReadTimeout, WriteTimeout: writePatience,
	})
	return s, nil
}

// Serve answers the clients of ln until Shutdown and closes ln. After Shutdown
// it closes ln at once.
func (s *Server) Serve(ln net.Listener) error {
	if err := s.server.Serve(ln); err != nil {
		return fmt.Errorf("serve admin API: %w", err)
	}
	return nil
}

// Shutdown takes no new connection and waits for the running calls, at most 5 s
// and until ctx ends. Then they are cancelled and every connection is cut; that
// is no error, since clients of this API can repeat what they asked.
func (s *Server) Shutdown(ctx context.Context) error {
	if err := s.server.Shutdown(ctx); err != nil {
		return fmt.Errorf("stop admin API: %w", err)
	}
	return nil
}

// errStopped ends the calls of a server that stops.
var errStopped = errors.New("the admin API has stopped")

// Run serves ln until ctx ends, then shuts down.
func (s *Server) Run(ctx context.Context, ln net.Listener) error {
	served := make(chan error, 1)
	go func() { served <- s.Serve(ln) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	return errors.Join(s.Shutdown(context.WithoutCancel(ctx)), <-served)
}
