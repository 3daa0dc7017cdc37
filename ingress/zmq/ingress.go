// Package zmq subscribes to the KV-event publishers of engines over ZeroMQ and feeds what they say to sinks.
//
// A few owner goroutines hold all sockets; each registered worker and rank belongs to one of them, so that its messages
// are applied in order and the number of OS threads does not grow with the number of publishers. What to do with the
// messages is decided by package stream; what they hold is decoded by package wire.
//
// Goroutines: Run starts Config.Owners owners and ends them before it returns. Register and Unregister may be called
// from any goroutine, before, while and after Run. A socket is used by its owner alone; the sending end of an owner's
// wake-up pair is guarded by owner.mu.
//
// Lock order: DirectIngress.mu → owner.mu → listener.mu.
//
//	in, err := zmq.New(zmq.DefaultConfig(), log, registry)
//	go in.Run(ctx)
//	err = in.Register(zmq.Source{Worker: w, Endpoint: "tcp://10.0.0.7:5557", Replay: "tcp://10.0.0.7:5558", Sink: sink})
package zmq

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	zmq4 "github.com/pebbe/zmq4"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/routerd/routerd/fleet"
)

// ErrRegistered is wrapped when a worker and rank is registered twice.
var ErrRegistered = errors.New("already registered")

// ErrEnded is wrapped when a worker is registered after Run has returned.
var ErrEnded = errors.New("the ingress has ended")

// termWait is how long Run waits for ZeroMQ to let go of its sockets.
const termWait = 5 * time.Second

// maxSockets is how many ZeroMQ sockets one DirectIngress may open.
const maxSockets = 65_000

// DirectIngress listens to the publishers of engines directly. Make one with New; it is safe for concurrent use.
type DirectIngress struct {
	cfg     Config
	keys    keyPair
	log     *slog.Logger
	metrics *metrics

	mu        sync.Mutex // guards all below
	owners    []*owner
	listeners map[fleet.Worker]*listener
	sharing   map[string][]*listener // by endpoint; those of one that fleet.Binds tells of share an owner
	next      int
	ran       bool
}

// New returns an ingress without registrations. It starts nothing.
func New(cfg Config, log *slog.Logger, reg prometheus.Registerer) (*DirectIngress, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("make ZeroMQ ingress: %w", err)
	}
	keys, err := cfg.Curve.pair()
	if err != nil {
		return nil, fmt.Errorf("make ZeroMQ ingress: %w", err)
	}
	m, err := newMetrics(reg)
	if err != nil {
		return nil, fmt.Errorf("make ZeroMQ ingress: %w", err)
	}
	d := &DirectIngress{cfg: cfg, keys: keys, log: log, metrics: m, listeners: map[fleet.Worker]*listener{}, sharing: map[string][]*listener{}}
	for range cfg.Owners {
		d.owners = append(d.owners, &owner{listeners: map[*listener]struct{}{}, subs: map[*subscription]struct{}{}, bound: map[string]*subscription{}})
	}
	return d, nil
}

// Run listens until ctx ends and returns nil then, with all sockets closed; an error means that ZeroMQ failed. It can be
// called once.
func (d *DirectIngress) Run(ctx context.Context) error {
	d.mu.Lock()
	again := d.ran
	d.ran = true
	d.mu.Unlock()
	if again {
		return errors.New("run ZeroMQ ingress: it ran already")
	}
	zctx, err := zmq4.NewContext()
	if err != nil {
		return fmt.Errorf("run ZeroMQ ingress: %w", err)
	}
	if err := zctx.SetMaxSockets(maxSockets); err != nil {
		return errors.Join(fmt.Errorf("run ZeroMQ ingress: set the number of sockets: %w", err), zctx.Term())
	}
	inner, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var owners sync.WaitGroup
	for i, o := range d.owners {
		if err := o.open(zctx, i); err != nil {
			cancel(fmt.Errorf("run ZeroMQ ingress: %w", err))
			break
		}
	}
	for _, o := range d.owners {
		owners.Go(func() {
			if err := o.run(inner); err != nil {
				cancel(fmt.Errorf("run ZeroMQ ingress: %w", err))
			}
		})
	}
	<-inner.Done()
	for _, o := range d.owners {
		o.push(func() {})
	}
	owners.Wait()
	var failed error
	if ctx.Err() == nil {
		failed = context.Cause(inner)
	}
	return errors.Join(failed, terminate(zctx))
}

// terminate ends the context; one that does not end is left behind.
func terminate(zctx *zmq4.Context) error {
	ended := make(chan error, 1)
	go func() { ended <- zctx.Term() }()
	select {
	case err := <-ended:
		if err != nil {
			return fmt.Errorf("end ZeroMQ: %w", err)
		}
		return nil
	case <-time.After(termWait):
		return fmt.Errorf("end ZeroMQ: sockets still open after %v", termWait)
	}
}

// Register begins to listen to a source. It returns once the source is accepted; whether the publisher can be reached
// shows in Status. It wraps ErrRegistered when the worker and rank is registered, and ErrEnded after Run.
func (d *DirectIngress) Register(src Source) error {
	if err := src.validate(); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.listeners[src.Worker] != nil {
		return fmt.Errorf("register events of worker %s: %w", src.Worker, ErrRegistered)
	}
	o, err := d.place(&src)
	if err != nil {
		return fmt.Errorf("register events of worker %s: %w", src.Worker, err)
	}
	l := newListener(d, o, src)
	if !o.push(func() { o.add(l) }) {
		return fmt.Errorf("register events of worker %s: %w", src.Worker, ErrEnded)
	}
	d.listeners[src.Worker] = l
	d.doubt(&src)
	d.sharing[src.Endpoint] = append(d.sharing[src.Endpoint], l)
	return nil
}

// doubt tells of a publisher whose events two workers are given: one of them has other blocks.
func (d *DirectIngress) doubt(src *Source) {
	if fleet.Binds(src.Endpoint) {
		return
	}
	for _, l := range d.sharing[src.Endpoint] {
		if l.src.Worker.ID != src.Worker.ID {
			d.log.Warn("two workers name one publisher of KV events: what it tells counts for both", "worker", src.Name, "other", l.src.Name, "endpoint", src.Endpoint)
			return
		}
	}
}

// place chooses the owner of a source. The numbers of two ranks would mix in one socket: a topic names no rank.
func (d *DirectIngress) place(src *Source) (*owner, error) {
	var shared []*listener
	if fleet.Binds(src.Endpoint) {
		shared = d.sharing[src.Endpoint]
	}
	for _, l := range shared {
		if l.src.Worker.ID == src.Worker.ID {
			return nil, &fleet.FieldError{
				Field: "kv_events", Value: src.Endpoint, Allowed: fmt.Sprintf("a port that rank %d of this worker does not have", l.src.Worker.Rank),
			}
		}
	}
	if len(shared) > 0 {
		return shared[0].owner, nil
	}
	d.next++
	return d.owners[d.next%len(d.owners)], nil
}

// unplace undoes what Register keeps of a listener.
func (d *DirectIngress) unplace(l *listener) {
	delete(d.listeners, l.src.Worker)
	at := l.src.Endpoint
	left := slices.DeleteFunc(d.sharing[at], func(o *listener) bool { return o == l })
	if d.sharing[at] = left; len(left) == 0 {
		delete(d.sharing, at)
	}
}

// Unregister stops listening for some ranks. When it returns, no further event of those registrations is applied and
// their sinks are not called again. An unknown one is no error. It waits for one turn of each owner, however many ranks
// there are. What it returns are the ranks that are not registered and that those streams stored blocks for too, in no
// order: nobody tells of them any more. After Run it returns none.
func (d *DirectIngress) Unregister(ranks ...fleet.Worker) (others []fleet.Worker) {
	gone := map[*owner][]*listener{}
	d.mu.Lock()
	for _, w := range ranks {
		if l := d.listeners[w]; l != nil {
			d.unplace(l)
			gone[l.owner] = append(gone[l.owner], l)
		}
	}
	d.mu.Unlock()
	var done sync.WaitGroup
	fed := make(chan map[fleet.Worker]struct{}, len(ranks))
	for o, all := range gone {
		done.Add(1)
		if !o.push(func() {
			defer done.Done()
			for _, l := range all {
				o.remove(l)
				delete(l.fed, l.src.Worker)
				fed <- l.fed
			}
		}) {
			done.Done()
		}
	}
	done.Wait()
	close(fed)
	d.mu.Lock()
	defer d.mu.Unlock()
	for all := range fed {
		for w := range all {
			if d.listeners[w] == nil && !slices.Contains(ranks, w) {
				others = append(others, w)
			}
		}
	}
	return others
}

// Status returns a snapshot of the stream of a worker and rank, and whether it is registered.
func (d *DirectIngress) Status(w fleet.Worker) (Status, bool) {
	d.mu.Lock()
	l := d.listeners[w]
	d.mu.Unlock()
	if l == nil {
		return Status{}, false
	}
	return l.status(), true
}
