package zmq

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	zmq4 "github.com/pebbe/zmq4"

	"github.com/routerd/routerd/ingress/wire"
)

const (
	// restPerSocket is how long an owner rests after a look, for each of its sockets. A look costs about 2 µs a socket, so
	// that all of them together take a sixth of a core at most.
	restPerSocket = 10 * time.Microsecond
	// restLeast is for how long it rests at least: to be woken costs more than to read some messages. restMost is what a
	// message may wait for at most.
	restLeast = time.Millisecond
	restMost  = 5 * time.Millisecond
)

// reader has sockets. serve handles what one of them received, and tells whether there may be more.
type reader interface {
	serve(s *zmq4.Socket) (more bool)
}

// owner is a goroutine that holds sockets. Fields without a note belong to that goroutine.
type owner struct {
	zctx      *zmq4.Context
	poller    *zmq4.Poller
	wake      *zmq4.Socket // receives a message when the queue has something
	listeners map[*listener]struct{}
	subs      map[*subscription]struct{}
	bound     map[string]*subscription // those that bind, by endpoint
	ready     map[*zmq4.Socket]reader
	batch     wire.Batch
	receiver  receiver
	monitors  int // ever made, to give each its own address
	serving   bool

	mu      sync.Mutex // guards all below
	queue   []func()
	running bool
	stopped bool
	bell    *zmq4.Socket // sends to wake
}

// open makes the owner's wake-up pair; run must follow.
func (o *owner) open(zctx *zmq4.Context, index int) error {
	o.zctx = zctx
	o.poller = zmq4.NewPoller()
	o.ready = map[*zmq4.Socket]reader{}
	address := fmt.Sprintf("inproc://owner-%d", index)
	var err error
	if o.wake, err = zctx.NewSocket(zmq4.PAIR); err != nil {
		return fmt.Errorf("make wake-up socket: %w", err)
	}
	if err := o.wake.Bind(address); err != nil {
		return fmt.Errorf("bind wake-up socket: %w", err)
	}
	bell, err := zctx.NewSocket(zmq4.PAIR)
	if err != nil {
		return fmt.Errorf("make wake-up socket: %w", err)
	}
	if err := bell.Connect(address); err != nil {
		return errors.Join(fmt.Errorf("connect wake-up socket: %w", err), bell.Close())
	}
	o.poller.Add(o.wake, zmq4.POLLIN)
	o.mu.Lock()
	o.bell, o.running = bell, true
	o.mu.Unlock()
	return nil
}

// push has a function called on the owner's goroutine, or at once while that does not run yet. It reports false once the
// owner has ended: the function is not called then.
func (o *owner) push(f func()) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.stopped {
		return false
	}
	if !o.running {
		f()
		return true
	}
	o.queue = append(o.queue, f)
	_, _ = o.bell.SendBytes([]byte{0}, zmq4.DONTWAIT) // full: the owner is about to look anyway
	return true
}

// run serves the owner's sockets until ctx ends, then closes them.
func (o *owner) run(ctx context.Context) error {
	defer o.close()
	if o.poller == nil {
		return nil
	}
	o.serving = true
	for l := range o.listeners {
		o.subscribe(l)
	}
	for ctx.Err() == nil {
		polled, err := o.poller.Poll(o.timeout(time.Now()))
		if err != nil && !interrupted(err) {
			return fmt.Errorf("poll sockets: %w", err)
		}
		more := false
		for _, p := range polled {
			if p.Socket == o.wake {
				o.serveQueue()
			} else if r := o.ready[p.Socket]; r != nil {
				more = r.serve(p.Socket) || more
			}
		}
		now := time.Now()
		for s := range o.subs {
			if due(s.deadline(), now) {
				s.tick(now)
			}
		}
		for l := range o.listeners {
			if due(l.deadline(), now) {
				l.tick(now)
			}
		}
		if !more {
			o.rest()
		}
	}
	return nil
}

// rest waits for more to come: a look costs as much for one message as for many.
func (o *owner) rest() {
	time.Sleep(min(max(time.Duration(len(o.ready))*restPerSocket, restLeast), restMost))
}

// timeout returns how long to poll: until the next listener has something to do, for ever when none has.
func (o *owner) timeout(now time.Time) time.Duration {
	var next time.Time
	for s := range o.subs {
		next = sooner(next, s.deadline())
	}
	for l := range o.listeners {
		next = sooner(next, l.deadline())
	}
	if next.IsZero() {
		return -1
	}
	return max(0, next.Sub(now)).Truncate(time.Millisecond) + time.Millisecond
}

func (o *owner) serveQueue() {
	for {
		if _, err := o.wake.RecvBytes(zmq4.DONTWAIT); err != nil {
			break
		}
	}
	o.mu.Lock()
	queue := o.queue
	o.queue = nil
	o.mu.Unlock()
	for _, f := range queue {
		f()
	}
}

// add takes a listener in, and opens its sockets when the owner runs.
func (o *owner) add(l *listener) {
	o.listeners[l] = struct{}{}
	if o.serving {
		o.subscribe(l)
	}
}

// subscribe gives a listener a subscription of its own, or that of those who bind the same endpoint.
func (o *owner) subscribe(l *listener) {
	s := o.bound[l.src.Endpoint]
	if s == nil {
		s = newSubscription(l)
		o.subs[s] = struct{}{}
		if s.bind {
			o.bound[s.endpoint] = s
		}
	}
	l.sub = s
	s.listeners = append(s.listeners, l)
	if len(s.listeners) == 1 {
		s.start()
	} else {
		l.publish()
	}
}

// unsubscribe undoes subscribe.
func (o *owner) unsubscribe(l *listener) {
	s := l.sub
	if s == nil {
		return
	}
	s.forget(l)
	if len(s.listeners) == 0 {
		delete(o.subs, s)
		delete(o.bound, s.endpoint)
		s.close()
	}
}

// remove closes a listener and forgets it.
func (o *owner) remove(l *listener) {
	if _, ok := o.listeners[l]; ok {
		delete(o.listeners, l)
		o.unsubscribe(l)
		l.close()
	}
}

// close ends the owner: what is still queued is done first, so that nobody waits for it in vain.
func (o *owner) close() {
	o.mu.Lock()
	queue, bell := o.queue, o.bell
	o.queue, o.bell = nil, nil
	o.running, o.stopped = false, true
	o.mu.Unlock()
	for _, f := range queue {
		f()
	}
	for l := range o.listeners {
		o.remove(l)
	}
	for _, s := range []*zmq4.Socket{bell, o.wake} {
		if s != nil {
			closeSocket(s)
		}
	}
}

// watch adds a socket to the poller.
func (o *owner) watch(s *zmq4.Socket, r reader) {
	o.ready[s] = r
	o.poller.Add(s, zmq4.POLLIN)
}

// unwatch closes a socket; nil is no error.
func (o *owner) unwatch(s *zmq4.Socket) {
	if s == nil {
		return
	}
	delete(o.ready, s)
	_ = o.poller.RemoveBySocket(s) // it was added by watch
	closeSocket(s)
}
