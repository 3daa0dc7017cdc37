package admin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/internal/httpapi"
)

const (
	headLimit     = 32 << 10         // bytes of a request's head
	readPatience  = 30 * time.Second // for head and body of a request
	writePatience = time.Minute      // for a client to take its answer
	idlePatience  = 2 * time.Minute  // for the next request of a connection
	callPatience  = 2 * time.Minute  // for one change, such as compiling modules
	stopPatience  = 5 * time.Second  // for running calls when Run ends
	cutPatience   = 2 * time.Second  // for calls that were cancelled
	cutPoll       = 5 * time.Millisecond
	poolSweep     = 100 * time.Millisecond
	maxBody       = 1 << 30 // bytes, whatever is configured
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
func DefaultConfig() Config { return Config{MaxBody: 16 << 20, ReadTimeout: readPatience} }

// Validate refuses what is out of range.
func (c Config) Validate() error {
	if c.MaxBody < 1<<10 || c.MaxBody > maxBody {
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
	http   *fasthttp.Server
	conns  httpapi.Conns
	cancel context.CancelCauseFunc // ends the calls

	mu       sync.Mutex // guards both below
	stopped  bool       // Shutdown was called
	listener net.Listener
}

// New makes a server. Nothing runs before Serve.
func New(cfg Config, parts Parts, log *slog.Logger) (*Server, error) {
	if cfg.ReadTimeout == 0 {
		cfg.ReadTimeout = readPatience
	}
	if err := errors.Join(cfg.Validate(), parts.validate()); err != nil {
		return nil, fmt.Errorf("admin configuration: %w", err)
	}
	s := &Server{parts: parts, log: log}
	s.now.Store(&settings{cfg, routes(cfg.MetricsPublic)})
	calls, cancel := context.WithCancelCause(context.Background())
	s.cancel = cancel
	s.http = &fasthttp.Server{
		Handler:                      func(rc *fasthttp.RequestCtx) { s.handle(calls, rc) },
		HeaderReceived:               s.boundBody,
		ErrorHandler:                 s.refuseParse,
		Logger:                       silent{},
		ReadBufferSize:               headLimit,
		ReadTimeout:                  cfg.ReadTimeout,
		WriteTimeout:                 writePatience,
		IdleTimeout:                  idlePatience,
		MaxIdleWorkerDuration:        poolSweep,
		MaxRequestBodySize:           maxBody, // boundBody sets a closer bound for each request
		NoDefaultServerHeader:        true,
		NoDefaultContentType:         true,
		SecureErrorLogMessage:        true,
		DisablePreParseMultipartForm: true,
		CloseOnShutdown:              true,
	}
	return s, nil
}

// Serve answers the clients of ln until Shutdown and closes ln. After Shutdown
// it closes ln at once.
func (s *Server) Serve(ln net.Listener) error {
	if !s.open(ln) {
		return ln.Close()
	}
	err := s.http.Serve(s.conns.Wrap(ln))
	if s.isStopped() {
		return nil // whatever the closed listener said
	}
	if err == nil {
		err = errors.New("the listener was closed")
	}
	return fmt.Errorf("serve admin API: %w", err)
}

// open remembers the listener; false after Shutdown.
func (s *Server) open(ln net.Listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listener = ln
	return !s.stopped
}

func (s *Server) isStopped() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stopped
}

// stop makes every further Serve end at once and returns the listener.
func (s *Server) stop() net.Listener {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
	return s.listener
}

// Shutdown takes no new connection and waits for the running calls, at most 5 s
// and until ctx ends. Then they are cancelled and every connection is cut; that
// is no error, since clients of this API can repeat what they asked.
func (s *Server) Shutdown(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stopPatience)
	defer cancel()
	ln := s.stop()
	err := s.http.ShutdownWithContext(ctx)
	if ln != nil {
		_ = ln.Close() // open only where the http server had not taken it over yet
	}
	s.cancel(errors.New("the admin API has stopped"))
	if ctx.Err() != nil {
		err = errors.Join(s.conns.Cut(), s.waitCut())
	}
	if err != nil {
		return fmt.Errorf("stop admin API: %w", err)
	}
	return nil
}

// waitCut waits for the calls whose connections were cut.
func (s *Server) waitCut() error {
	tick := time.NewTicker(cutPoll)
	defer tick.Stop()
	for deadline := time.Now().Add(cutPatience); s.http.GetOpenConnectionsCount() > 0; <-tick.C {
		if time.Now().After(deadline) {
			return errors.New("a call did not end when it was cancelled")
		}
	}
	return nil
}

// Run serves ln until ctx ends, then shuts down.
func (s *Server) Run(ctx context.Context, ln net.Listener) error {
	served := make(chan error, 1)
	go func() { served <- s.Serve(ln) }()
	select {
	case err := <-served:
		s.cancel(errors.New("the admin API has stopped"))
		return err
	case <-ctx.Done():
	}
	return errors.Join(s.Shutdown(context.WithoutCancel(ctx)), <-served)
}

// silent drops what fasthttp would log: its texts can hold parts of requests.
type silent struct{}

func (silent) Printf(string, ...any) {}
