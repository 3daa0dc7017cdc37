package clientwatch

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// ErrRan is returned by every Run but the first.
var ErrRan = errors.New("clientwatch: Run was called before")

// shards keeps accepting and closing connections from meeting on one lock.
const shards = 16

// Watcher knows the open client connections and hears which of them go.
// It is safe for concurrent use.
type Watcher struct {
	cfg       Config
	poller    *poller
	lastID    atomic.Uint64
	unwatched atomic.Uint64
	shard     [shards]shard

	mu      sync.Mutex // guards closed, running
	closed  bool
	running chan struct{} // closed when Run has returned; nil before it
}

type shard struct {
	mu    sync.Mutex // guards conns
	conns map[uint64]*Conn
}

// New returns a watcher. It holds a descriptor until Close, also if Run is
// never called.
func New(cfg Config) (*Watcher, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	p, err := newPoller(cfg.HalfClose == HalfCloseAbort)
	if err != nil {
		return nil, fmt.Errorf("open poller: %w", err)
	}
	w := &Watcher{cfg: cfg, poller: p}
	for i := range w.shard {
		w.shard[i].conns = make(map[uint64]*Conn)
	}
	return w, nil
}

// Run delivers events, on its own goroutine, until ctx ends or Close is
// called; it then returns nil. Events that come in before Run are not lost.
// A watcher runs once.
func (w *Watcher) Run(ctx context.Context) error {
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return nil
	}
	if w.running != nil {
		w.mu.Unlock()
		return ErrRan
	}
	done := make(chan struct{})
	w.running = done
	w.mu.Unlock()
	defer close(done)

	stop := context.AfterFunc(ctx, w.poller.wake)
	defer stop()
	return w.poller.run(w.gone)
}

// Close ends Run, waits for it and frees the descriptor. Open connections
// stay open and are no longer watched. It must not be called from a callback.
func (w *Watcher) Close() error {
	w.mu.Lock()
	again, running := w.closed, w.running
	w.closed = true
	w.mu.Unlock()
	w.poller.wake()
	if running != nil {
		<-running
	}
	if again {
		return nil
	}
	return w.poller.close()
}

// Wrap returns a listener whose connections are watched. Several listeners
// may share a watcher.
func (w *Watcher) Wrap(ln net.Listener) *Listener {
	return &Listener{Listener: ln, w: w}
}

// Open returns how many accepted connections are not closed yet.
func (w *Watcher) Open() int {
	n := 0
	for i := range w.shard {
		s := &w.shard[i]
		s.mu.Lock()
		n += len(s.conns)
		s.mu.Unlock()
	}
	return n
}

// Unwatched counts accepted connections that the system refused to watch
// (its limit of watches was reached) or that have no descriptor. They are
// served; their client is found gone at a failed write.
func (w *Watcher) Unwatched() uint64 { return w.unwatched.Load() }

// adopt wraps an accepted connection. The entry is made before the watch
// begins: the event comes once and must find it.
func (w *Watcher) adopt(nc net.Conn) *Conn {
	c := &Conn{Conn: nc, w: w, id: w.lastID.Add(1), writeTimeout: w.cfg.WriteTimeout, opened: time.Now()}
	c.unregister = c.forget
	tune(nc, w.cfg)
	s := w.of(c.id)
	s.mu.Lock()
	s.conns[c.id] = c
	s.mu.Unlock()
	if err := w.poller.add(nc, c.id); err != nil {
		w.unwatched.Add(1)
	}
	return c
}

func (w *Watcher) drop(id uint64) {
	s := w.of(id)
	s.mu.Lock()
	delete(s.conns, id)
	s.mu.Unlock()
}

// gone handles one event; an id that is no longer known is an event that was
// on its way when the connection closed.
func (w *Watcher) gone(id uint64) {
	s := w.of(id)
	s.mu.Lock()
	c := s.conns[id]
	s.mu.Unlock()
	if c != nil {
		c.markGone()
	}
}

func (w *Watcher) of(id uint64) *shard { return &w.shard[id%shards] }
