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

	"github.com/routerd/routerd/clientwatch"
	"github.com/routerd/routerd/internal/apiserver"
	"github.com/routerd/routerd/internal/httpapi"
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
	server  *apiserver.Server
	bodies  bodies
	//nolint:containedctx // the lifetime of the server, under which every call runs
	calls  context.Context
	cancel context.CancelCauseFunc
	//nolint:containedctx // that of the calls that may wait in the queue: it ends first
	waits   context.Context
	leave   context.CancelCauseFunc
	serving atomic.Bool
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
	s.server = apiserver.New(s.api(apiserver.ReadPatience))
	var err error
	if s.metrics, err = newMetrics(reg, s.table.all, func() float64 { return float64(s.server.Connections()) }); err != nil {
		return nil, fmt.Errorf("selection metrics: %w", err)
	}
	return s, nil
}

// api is what the server below serves; read is how long a request may take to
// arrive whole.
func (s *Server) api(read time.Duration) apiserver.API {
	return apiserver.API{
		Handle: s.handle, BodyLimit: s.bodyLimit, Realm: "routerd selection", ReadTimeout: read,
		Cancel:     func() { s.cancel(errStopped) },
		Unreadable: func(f *httpapi.Failure) { s.metrics.count(nil, f.HTTPStatus(), 0) },
	}
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
	if err = s.server.Serve(&listener{Listener: ln, watchers: watchers, cfg: &s.cfg, metrics: s.metrics}); err != nil {
		err = fmt.Errorf("serve the selection service: %w", err)
	}
	err = errors.Join(err, watchers.Close())
	watching.Wait()
	return errors.Join(err, watchErr)
}

// Shutdown takes no new connection, refuses the calls that wait in the queue, and
// waits for the others, at most 5 s and until ctx ends. Then they are cancelled, have
// a moment for their answers, and every connection is cut.
func (s *Server) Shutdown(ctx context.Context) error {
	s.leave(errStopped)
	if err := s.server.Shutdown(ctx); err != nil {
		return fmt.Errorf("stop the selection service: %w", err)
	}
	return nil
}
