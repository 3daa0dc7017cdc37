package frontend

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
	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/prompt"
	"github.com/routerd/routerd/upstream"
)

// Selector is what the frontend asks the core for.
type Selector interface {
	WorkerReports
	Directory
	Select(ctx context.Context, req *core.Request) (*core.Selection, error)
}

// Directory knows models and workers.
type Directory interface {
	ResolveModel(name, group string) (key fleet.PartitionKey, adapter string, ok bool)
	Models(group string) []core.ModelCard
	// BlockSize is in tokens; 0 for a partition that is not known.
	BlockSize(key fleet.PartitionKey) int
	// Partitions names the workers that are known.
	Partitions() []core.PartitionView
}

// WorkerReports hears how workers answered.
type WorkerReports interface {
	// Inhibit reports a worker that could not be reached, Reached one that
	// answered, Refused one whose answer was that it takes no more for now:
	// retryAfter is how long by its own words, 0 when it does not say.
	Inhibit(id fleet.WorkerID)
	Reached(id fleet.WorkerID)
	Refused(id fleet.WorkerID, retryAfter time.Duration)
}

// Tokenizer turns a prompt into token ids, or says why it has none.
type Tokenizer interface {
	Tokenize(ctx context.Context, key fleet.PartitionKey, in prompt.Input) ([]uint32, prompt.Outcome)
}

const (
	headLimit     = 32 << 10 // bytes of a request's head
	writeBuffer   = 4 << 10
	relayBuffer   = 8 << 10          // of one body of known length
	readPatience  = 30 * time.Second // for head and body of a request
	idlePatience  = 2 * time.Minute  // for the next request of a connection
	poolSweep     = 100 * time.Millisecond
	retryLater    = time.Second // Retry-After of a router that ends
	defaultGroup  = ""          // routing group of this surface
	surfaceName   = "frontend"
	linger        = time.Second // for a client that still sends what was refused
	lingerAtMost  = 64 << 20    // bytes that are read away meanwhile
	maxPlainBytes = 8 << 20     // of an answer that has to be held whole
)

// Server is the OpenAI-compatible surface. Its methods are safe for concurrent
// use.
type Server struct {
	cfg       atomic.Pointer[Config] // never changed in place
	core      Selector
	tokenizer Tokenizer
	upstream  *upstream.Client
	modeOf    func(model string) prompt.Mode
	outcomes  Outcomes
	log       *slog.Logger
	metrics   *metrics
	http      *fasthttp.Server
	budget    retryBudget
	endpoints endpoints
	buffers   buffers
	bodies    bodies
	ids       requestIDs
	calls     calls
	chat      *scanner
	text      *scanner
	routes    map[string]*route
	notReady  atomic.Bool
	serving   atomic.Bool
}

// New makes a server for a configuration; an error names the field that is out
// of range or the metric that is registered twice. modeOf tells what
// the prompts of a base model are known by. Nothing runs before Serve.
func New(
	cfg Config, selection Selector, tokenizer Tokenizer, client *upstream.Client, modeOf func(model string) prompt.Mode,
	log *slog.Logger, reg prometheus.Registerer,
) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("frontend configuration: %w", err)
	}
	s := &Server{core: selection, tokenizer: tokenizer, upstream: client, modeOf: modeOf, outcomes: unheard{}, log: log}
	var err error
	if s.metrics, err = newMetrics(reg, s.baseModels, s.workers); err != nil {
		return nil, fmt.Errorf("frontend metrics: %w", err)
	}
	s.cfg.Store(&cfg)
	s.chat, s.text = newScanner(prompt.Chat), newScanner(prompt.Completions)
	s.routes = s.routeTable()
	s.budget.fill()
	s.ids.start()
	s.calls.start()
	s.http = &fasthttp.Server{
		Handler:               s.handle,
		ErrorHandler:          s.refuseParse,
		Logger:                lineLogger{log},
		ReadBufferSize:        headLimit,
		WriteBufferSize:       writeBuffer,
		ReadTimeout:           readPatience,
		IdleTimeout:           idlePatience,
		ConnState:             s.calls.connState,
		MaxIdleWorkerDuration: poolSweep,
		// fasthttp would take memory for all of an announced body before a byte of
		// it is there: handlers read bodies themselves, see readBody.
		StreamRequestBody:            true,
		MaxRequestBodySize:           prefetch,
		ExpectHandler:                s.expect,
		NoDefaultServerHeader:        true,
		NoDefaultContentType:         true,
		SecureErrorLogMessage:        true,
		DisablePreParseMultipartForm: true,
		CloseOnShutdown:              true,
		ReduceMemoryUsage:            true,
	}
	return s, nil
}

// Configure puts another configuration in force; an error names the field that
// is out of range, and nothing has changed then. A request keeps the one that
// it began with. Another HalfClose holds for connections that are accepted from
// now on; those that are open end with their next answer.
func (s *Server) Configure(cfg Config) error {
	if err := cfg.Validate(); err != nil {
		return fmt.Errorf("frontend configuration: %w", err)
	}
	s.cfg.Store(&cfg)
	return nil
}

// ErrServed is returned by every Serve but the first.
var ErrServed = errors.New("frontend: Serve was called before")

// Serve answers the clients of ln until Drain has ended, and closes ln. A
// server serves once.
func (s *Server) Serve(ln net.Listener) error {
	if s.serving.Swap(true) {
		return ErrServed
	}
	watchers, err := clientwatch.NewModes()
	if err != nil {
		return err
	}
	var watching sync.WaitGroup
	var watchErr error
	watching.Go(func() { watchErr = watchers.Run() })
	ctx, stop := context.WithCancel(context.Background())
	watching.Go(func() { s.runLeases(ctx) })
	err = s.serve(&listener{Listener: ln, watchers: watchers, cfg: &s.cfg})
	stop()
	err = errors.Join(err, watchers.Close())
	watching.Wait()
	return errors.Join(err, watchErr)
}

// serve accepts until Drain has ended. A listener that comes after the drain
// has begun is closed at once.
func (s *Server) serve(ln net.Listener) error {
	if !s.calls.open(ln) {
		return ln.Close()
	}
	if err := s.http.Serve(ln); err != nil {
		return fmt.Errorf("accept clients: %w", err)
	}
	s.calls.waitDrained()
	return nil
}

// Ready tells whether the server takes requests; it does from the start. While
// it does not, and once Drain was called, /health and all requests are answered
// 503.
func (s *Server) Ready(ready bool) { s.notReady.Store(!ready) }

// refuseParse answers a request that fasthttp could not read. The connection
// is closed after it.
func (s *Server) refuseParse(ctx *fasthttp.RequestCtx, err error) {
	if c, ok := ctx.Conn().(*conn); ok {
		c.linger.Store(true)
	}
	a := answerTo(&parseError{err})
	a.write(&ctx.Response)
	if op, ok := errors.AsType[*net.OpError](err); ok && !op.Timeout() {
		return // the connection broke: nobody reads the answer
	}
	s.metrics.refused(a.status)
	s.log.Debug("request cannot be read", "status", a.status, "reason", a.code)
}

// lineLogger takes fasthttp's lines, which are about single connections and may
// quote a request: only the constant part goes on.
type lineLogger struct{ log *slog.Logger }

// Printf logs the format alone.
func (l lineLogger) Printf(format string, _ ...any) {
	l.log.Debug("http connection", "format", format)
}
