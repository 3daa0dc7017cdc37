package zmq

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	zmq4 "github.com/pebbe/zmq4"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/ingress/wire"
)

// Load is what an engine says of one rank over its load socket.
type Load struct {
	wire.Load
	At time.Time // when it was read
}

// LoadListener listens to the load sockets of engines (SGLang's
// --load-publish-endpoint). Make one with NewLoadListener; it is safe for concurrent
// use.
//
// Run is the one goroutine that holds sockets: while there are any it looks at all of
// them at once, 20 times a second, and hands the newest message of each on.
type LoadListener struct {
	cfg     Config
	keys    keyPair
	log     *slog.Logger
	sink    func(fleet.Worker, Load)
	metrics *loadMetrics
	wake    chan struct{} // size 1: a full one already wakes Run
	silence time.Duration // loadSilence

	mu      sync.Mutex // guards all below
	sources map[fleet.Worker]*loadSource
	gone    []*loadSource // to be closed by Run
	running bool
	ended   bool
}

// loadSource is one registered rank. What is not said otherwise belongs to Run.
type loadSource struct {
	worker   fleet.Worker  // never changes
	name     string        // never changes
	endpoint string        // never changes
	closed   chan struct{} // closed when nothing of it is handed on any more

	sub      *zmq4.Socket  // nil while it could not be opened
	retryAt  time.Time     // when it is tried again then
	refused  string        // why it could not
	since    time.Time     // of the last message that could be read, or of the start
	patience time.Duration // how long it may be silent
}

// NewLoadListener returns a listener without registrations. It starts nothing. Of cfg
// it uses what concerns connections: reconnecting, heartbeats and keys. sink is called
// from Run's goroutine and must not call back.
func NewLoadListener(cfg Config, sink func(fleet.Worker, Load), log *slog.Logger, reg prometheus.Registerer) (*LoadListener, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("make load listener: %w", err)
	}
	keys, err := cfg.Curve.pair()
	if err != nil {
		return nil, fmt.Errorf("make load listener: %w", err)
	}
	m, err := newLoadMetrics(reg)
	if err != nil {
		return nil, fmt.Errorf("make load listener: %w", err)
	}
	return &LoadListener{
		cfg: cfg, keys: keys, log: log, sink: sink, metrics: m, wake: make(chan struct{}, 1), silence: loadSilence,
		sources: map[fleet.Worker]*loadSource{},
	}, nil
}

// Listen begins to listen to the load socket of a rank, tcp://HOST:PORT or
// ipc://PATH; name is the worker's in logs. It wraps ErrRegistered when the rank is
// listened to already, and ErrEnded after Run.
func (l *LoadListener) Listen(w fleet.Worker, name, endpoint string) error {
	if err := fleet.CheckEndpoint("load_reports", endpoint); err != nil {
		return fmt.Errorf("listen to load of worker %s: %w", w, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.ended:
		return fmt.Errorf("listen to load of worker %s: %w", w, ErrEnded)
	case l.sources[w] != nil:
		return fmt.Errorf("listen to load of worker %s: %w", w, ErrRegistered)
	}
	l.sources[w] = &loadSource{worker: w, name: name, endpoint: endpoint, closed: make(chan struct{})}
	l.poke()
	return nil
}

// Unlisten ends that. When it returns, nothing of that rank is handed on any more. An
// unknown one is no error.
func (l *LoadListener) Unlisten(w fleet.Worker) {
	l.mu.Lock()
	s := l.sources[w]
	delete(l.sources, w)
	if s == nil || !l.running {
		l.mu.Unlock()
		return
	}
	l.gone = append(l.gone, s)
	l.poke()
	l.mu.Unlock()
	<-s.closed
}

func (l *LoadListener) poke() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// Run listens until ctx ends and returns nil then, with all sockets closed; an error
// means that ZeroMQ failed. It can be called once.
func (l *LoadListener) Run(ctx context.Context) error {
	l.mu.Lock()
	again := l.running || l.ended
	l.running = l.running || !again
	l.mu.Unlock()
	if again {
		return errors.New("run load listener: it ran already")
	}
	o := &loadOwner{LoadListener: l, open: map[*loadSource]struct{}{}, ready: map[*zmq4.Socket]*loadSource{}}
	err := o.run(ctx)
	return errors.Join(err, o.close())
}
