package selection

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/valyala/fasthttp"

	"github.com/routerd/routerd/clientwatch"
	"github.com/routerd/routerd/internal/httpapi"
)

const (
	headLimit      = 32 << 10               // bytes of a request's head
	readPatience   = 30 * time.Second       // for head and body of a request
	idlePatience   = 2 * time.Minute        // for the next request of a connection
	stopPatience   = 5 * time.Second        // for running calls when Shutdown begins
	answerPatience = 250 * time.Millisecond // for answers of calls that were cancelled
	cutPatience    = 2 * time.Second        // for calls whose connection was cut
	cutPoll        = 5 * time.Millisecond
	poolSweep      = 100 * time.Millisecond
	maxBody        = 1 << 30 // bytes, whatever is configured
)

// errStopped ends the calls of a server that stops.
var errStopped = errors.New("the selection service has stopped")

// ErrServed is returned by every Serve but the first.
var ErrServed = errors.New("selection: Serve was called before")

// Server is the selection service. Its methods are safe for concurrent use.
type Server struct {
	cfg     atomic.Pointer[Config] // never changed in place
	parts   Parts
	log     *slog.Logger
	metrics *metrics
	table   table
	http    *fasthttp.Server
	conns   httpapi.Conns
	bodies  bodies
	//nolint:containedctx // the lifetime of the server, under which every call runs
	calls  context.Context
	cancel context.CancelCauseFunc
	// waits ends before calls do: it is for those that may wait in the queue.
	waits context.Context
	leave context.CancelCauseFunc

	mu       sync.Mutex // guards both below
	stopped  bool       // Shutdown was called
	listener net.Listener
	serving  atomic.Bool
}

// New makes a server; an error names the field that is out of range or the metric
// that is registered twice. Nothing runs before Serve.
func New(cfg Config, parts Parts, log *slog.Logger, reg prometheus.Registerer) (*Server, error) {
	if err := errors.Join(cfg.Validate(), parts.validate()); err != nil {
		return nil, fmt.Errorf("selection configuration: %w", err)
	}
	s := &Server{parts: parts, log: log, table: newTable(routes())}
	s.cfg.Store(&cfg)
	s.calls, s.cancel = context.WithCancelCause(context.Background())
	s.waits, s.leave = context.WithCancelCause(s.calls)
	s.http = &fasthttp.Server{
		Handler:                      s.handle,
		HeaderReceived:               s.boundBody,
		ErrorHandler:                 s.refuseParse,
		Logger:                       silent{},
		ReadBufferSize:               headLimit,
		ReadTimeout:                  readPatience,
		IdleTimeout:                  idlePatience,
		MaxIdleWorkerDuration:        poolSweep,
		MaxRequestBodySize:           maxBody, // boundBody sets a closer bound for each request
		NoDefaultServerHeader:        true,
		NoDefaultContentType:         true,
		SecureErrorLogMessage:        true,
		DisablePreParseMultipartForm: true,
		CloseOnShutdown:              true,
	}
	var err error
	if s.metrics, err = newMetrics(reg, s.table.all, func() float64 { return float64(s.http.GetOpenConnectionsCount()) }); err != nil {
		return nil, fmt.Errorf("selection metrics: %w", err)
	}
	return s, nil
}

// Configure puts another configuration in force; an error names the field that is
// out of range, and nothing has changed then. A request keeps the one that it began
// with, a connection its HalfClose.
func (s *Server) Configure(cfg Config) error {
	if err := cfg.Validate(); err != nil {
		return fmt.Errorf("selection configuration: %w", err)
	}
	s.cfg.Store(&cfg)
	return nil
}

// Serve answers the callers of ln, of TCP or a Unix socket, until Shutdown, and
// closes ln. After Shutdown it closes ln at once. A server serves once.
func (s *Server) Serve(ln net.Listener) error {
	if s.serving.Swap(true) {
		return ErrServed
	}
	watchers, err := clientwatch.NewModes()
	if err != nil {
		return errors.Join(err, ln.Close())
	}
	var watching sync.WaitGroup
	var watchErr error
	watching.Go(func() { watchErr = watchers.Run() })
	err = s.serve(&listener{Listener: ln, watchers: watchers, cfg: &s.cfg, metrics: s.metrics})
	err = errors.Join(err, watchers.Close())
	watching.Wait()
	return errors.Join(err, watchErr)
}

func (s *Server) serve(ln net.Listener) error {
	if !s.open(ln) {
		return ln.Close()
	}
	err := s.http.Serve(s.conns.Wrap(ln))
	if s.isStopped() {
		return s.waitClosed(stopPatience + answerPatience + cutPatience) // whatever the closed listener said
	}
	if err == nil {
		err = errors.New("the listener was closed")
	}
	s.cancel(errStopped)
	return errors.Join(fmt.Errorf("serve the selection service: %w", err), s.conns.Cut(), s.waitClosed(cutPatience))
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

// Shutdown takes no new connection, refuses the calls that wait in the queue, and
// waits for the others, at most 5 s and until ctx ends. Then they are cancelled, have a moment for their answers, and
// every connection is cut.
func (s *Server) Shutdown(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stopPatience)
	defer cancel()
	ln := s.stop()
	s.leave(errStopped)
	err := s.http.ShutdownWithContext(ctx)
	if ln != nil {
		_ = ln.Close() // open only where the http server had not taken it over yet
	}
	s.cancel(errStopped)
	if ctx.Err() != nil {
		_ = s.waitClosed(answerPatience) // what does not end is cut
		err = errors.Join(s.conns.Cut(), s.waitClosed(cutPatience))
	}
	if err != nil {
		return fmt.Errorf("stop the selection service: %w", err)
	}
	return nil
}

// waitClosed waits for the connections to end.
func (s *Server) waitClosed(most time.Duration) error {
	tick := time.NewTicker(cutPoll)
	defer tick.Stop()
	for deadline := time.Now().Add(most); s.http.GetOpenConnectionsCount() > 0; <-tick.C {
		if time.Now().After(deadline) {
			return errors.New("a call did not end when it was cancelled")
		}
	}
	return nil
}

// silent drops what fasthttp would log: its texts can hold parts of requests.
type silent struct{}

// Printf drops the line.
func (silent) Printf(string, ...any) {}
