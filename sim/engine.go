package sim

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
)

// shutdownPatience bounds the wait for connections whose requests have ended.
const shutdownPatience = 500 * time.Millisecond

// Engine is one simulated engine. New, Start, Close in this order; or New, Run.
type Engine struct {
	cfg       Config
	log       *slog.Logger
	created   int64
	lexicon   lexicon
	adapters  *adapterTable
	pieces    *pieces
	ranks     []*rank
	publisher *publisher // nil when events are off
	faults    *faults
	watch     *watcher
	metrics   *metrics
	routes    map[string]map[string]handler // path → method → handler

	cancellations cancellations
	received      atomic.Uint64 // generation requests
	strays        atomic.Uint64 // cancelled before they reached a rank
	restarts      atomic.Uint64

	ready     chan struct{}
	begun     atomic.Bool // Start was called
	started   atomic.Bool // Start has succeeded
	closeOnce sync.Once
	closeErr  error
	root      context.Context //nolint:containedctx // the parent of all requests, ended by Close
	endRoot   context.CancelCauseFunc
	server    *fasthttp.Server
	listener  net.Listener
	served    chan error // size 1: the result of Serve
	loops     sync.WaitGroup

	eraMu  sync.Mutex      // guards eraCtx, endEra
	eraCtx context.Context //nolint:containedctx // a restart ends it and puts a new one here
	endEra context.CancelCauseFunc

	connMu sync.Mutex // guards conns
	conns  map[net.Conn]struct{}
}

// New returns an engine that is not started. The configuration must be valid.
func New(c Config, log *slog.Logger) (*Engine, error) {
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("configure engine: %w", err)
	}
	e := &Engine{
		cfg:      c,
		log:      log,
		created:  time.Now().Unix(),
		lexicon:  newLexicon(),
		adapters: newAdapterTable(c.Adapters),
		pieces:   &pieces{},
		faults:   newFaults(),
		watch:    newWatcher(),
		ready:    make(chan struct{}),
		served:   make(chan error, 1),
		conns:    make(map[net.Conn]struct{}),
	}
	for _, w := range answerWords {
		e.pieces.learn(w)
	}
	e.pieces.learn(". ")
	if c.Events {
		e.publisher = newPublisher(c, e.adapters, e.faults, e.loadOf, log)
	}
	for r := range c.Ranks {
		e.ranks = append(e.ranks, newRank(r, c, e.publisher))
	}
	e.metrics = newMetrics(e)
	e.routes = e.routeTable()
	e.root, e.endRoot = context.WithCancelCause(context.Background())
	e.eraCtx, e.endEra = context.WithCancelCause(e.root)
	return e, nil
}

// Run starts the engine, serves until ctx ends or serving fails, and closes it.
func (e *Engine) Run(ctx context.Context) error {
	if err := e.Start(); err != nil {
		return err
	}
	return e.wait(ctx)
}

// wait serves until ctx ends or serving fails, and closes the engine.
func (e *Engine) wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return e.Close()
	case err := <-e.served:
		e.served <- err
		return errors.Join(err, e.Close())
	}
}

// Start binds all addresses and begins to serve; it may be called once, also
// when it fails. When it has returned nil the engine answers; Close must follow.
func (e *Engine) Start() error {
	if !e.begun.CompareAndSwap(false, true) {
		return errors.New("start engine: it was started before")
	}
	ln, err := net.Listen("tcp", e.cfg.Listen)
	if err != nil {
		return fmt.Errorf("listen on %q: %w", e.cfg.Listen, err)
	}
	if e.publisher != nil {
		if err := e.publisher.start(); err != nil {
			return errors.Join(err, ln.Close())
		}
	}
	e.listener = ln
	e.server = e.newServer()
	e.loops.Go(func() { e.watch.run(e.root) })
	go func() { e.served <- e.server.Serve(ln) }()
	e.started.Store(true)
	close(e.ready)
	return nil
}

// Ready is closed when Start has succeeded.
func (e *Engine) Ready() <-chan struct{} { return e.ready }

// Close cuts off running requests, ends all goroutines and waits for them. It is
// idempotent and safe for concurrent use; without Start it does nothing.
func (e *Engine) Close() error {
	if !e.started.Load() {
		return nil
	}
	e.closeOnce.Do(func() { e.closeErr = e.shutDown() })
	return e.closeErr
}

func (e *Engine) shutDown() error {
	e.endRoot(errClosed)
	e.loops.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), shutdownPatience)
	defer cancel()
	err := e.server.ShutdownWithContext(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		// What is left are connections whose client does not read or never
		// sent a request.
		rest, stop := context.WithTimeout(context.Background(), shutdownPatience)
		defer stop()
		e.closeConns(rest)
		err = nil
	}
	// A server that has not begun to serve yet does not hear of its shutdown: it
	// finds a closed listener.
	if closeErr := e.listener.Close(); !errors.Is(closeErr, net.ErrClosed) {
		err = errors.Join(err, closeErr)
	}
	serveErr := <-e.served
	if e.publisher != nil {
		e.publisher.close()
	}
	return errors.Join(err, serveErr)
}

// URL is the engine's HTTP address, such as "http://127.0.0.1:40123". Valid
// after Start.
func (e *Engine) URL() string { return "http://" + e.listener.Addr().String() }

// EventEndpoints are the addresses of the event publishers by rank; empty when
// events are off. Valid after Start.
func (e *Engine) EventEndpoints() map[int]string { return e.endpoints(false) }

// ReplayEndpoints are the addresses for replay requests by rank; empty without
// replay. Valid after Start.
func (e *Engine) ReplayEndpoints() map[int]string { return e.endpoints(true) }

func (e *Engine) endpoints(replay bool) map[int]string {
	if e.publisher == nil {
		return map[int]string{}
	}
	return e.publisher.endpoints(replay)
}

// restart serves POST /sim/restart: what a crash and a new start do to others.
// Running requests are cut off, caches and replay buffers are empty, numbers
// begin at 0, adapters that were loaded by API are gone, and the event sockets are
// bound anew on the same ports.
func (e *Engine) restart(x *exchange) {
	e.newEra()
	e.adapters.reset(e.cfg.Adapters)
	if err := e.forgetAll(); err != nil {
		e.log.Error("restart", "err", err)
		x.fail(err)
		return
	}
	e.restarts.Add(1)
	x.reply(fasthttp.StatusOK, map[string]uint64{"restarts": e.restarts.Load()})
}

func (e *Engine) newEra() {
	e.eraMu.Lock()
	defer e.eraMu.Unlock()
	e.endEra(errRestart)
	e.eraCtx, e.endEra = context.WithCancelCause(e.root)
}

// forgetAll empties all caches at one moment of the event stream and waits
// until the publisher has followed.
func (e *Engine) forgetAll() error {
	for _, r := range e.ranks {
		r.mu.Lock()
	}
	for _, r := range e.ranks {
		r.cache.clear()
	}
	var restarted <-chan error
	if e.publisher != nil {
		restarted = e.publisher.restart()
	}
	for _, r := range e.ranks {
		r.mu.Unlock()
	}
	if restarted == nil {
		return nil
	}
	select {
	case err := <-restarted:
		return err
	case <-e.root.Done():
		return context.Cause(e.root)
	}
}
