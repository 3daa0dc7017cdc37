package zmq

import (
	"fmt"
	"slices"
	"time"

	zmq4 "github.com/pebbe/zmq4"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/internal/backoff"
)

// faultsTold is how many faults are told before all is well again.
const faultsTold = 8

// subscription is a socket that KV events come in by, with the listeners that get them: one, or all that name the same
// endpoint to bind. It belongs to its owner's goroutine.
type subscription struct {
	ingress   *DirectIngress
	owner     *owner
	endpoint  string
	bind      bool
	listeners []*listener
	byPod     map[string]*listener // who got a pod's last message
	strangers int                  // messages of nobody's that were told of
	link      link

	sub, monitor *zmq4.Socket
	retryAt      time.Time // when to open them; zero while they are open
	unopened     bool      // they could not be, and the fault says why
}

func newSubscription(l *listener) *subscription {
	return &subscription{
		ingress: l.ingress, owner: l.owner, endpoint: l.src.Endpoint, bind: fleet.Binds(l.src.Endpoint),
		byPod: map[string]*listener{}, link: link{cfg: &l.ingress.cfg},
	}
}

// start opens the sockets, or sees to another try: a port may be taken for a moment by the socket before this one.
func (s *subscription) start() {
	s.retryAt = time.Time{}
	switch err := s.open(); {
	case err != nil:
		s.unopened = true
		s.again(err.Error())
	case s.unopened:
		s.unopened = false
		s.link.well()
	}
	s.publish()
}

// again closes the sockets, to open them anew after a while.
func (s *subscription) again(why string) {
	now := time.Now()
	s.close()
	s.link.failures++
	s.accuse(why)
	s.retryAt = now.Add(backoff.Doubled(s.ingress.cfg.ReconnectIvl, s.ingress.cfg.ReconnectIvlMax, s.link.failures))
}

// accuse notes what is wrong with the connection. Each fault is told once until all is well: some take turns, at each try.
func (s *subscription) accuse(why string) {
	k := &s.link
	k.fault = why
	if slices.Contains(k.told, why) || len(k.told) >= faultsTold {
		return
	}
	k.told = append(k.told, why)
	name, rank := "", uint32(0)
	if len(s.listeners) == 1 {
		name, rank = s.listeners[0].src.Name, s.listeners[0].src.Worker.Rank
	}
	s.ingress.log.Error("cannot listen to KV events", "worker", name, "rank", rank, "endpoint", s.endpoint, "err", why)
}

func (s *subscription) open() error {
	o, cfg := s.owner, &s.ingress.cfg
	sub, err := o.zctx.NewSocket(zmq4.SUB)
	if err != nil {
		return fmt.Errorf("make socket: %w", err)
	}
	s.sub = sub
	o.watch(sub, s)
	o.monitors++
	address := fmt.Sprintf("inproc://monitor-%p-%d", o, o.monitors)
	steps := []func() error{
		func() error { return prepareSocket(sub, cfg, &s.ingress.keys, int64(cfg.MaxMessage), s.endpoint) },
		func() error { return sub.SetRcvhwm(cfg.RcvHWM) },
		func() error { return sub.SetSubscribe("") },
		func() error { return sub.Monitor(address, linkEvents) },
		func() error { return s.openMonitor(address) },
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return fmt.Errorf("set up socket: %w", err)
		}
	}
	if s.bind {
		if err := sub.Bind(s.endpoint); err != nil {
			return fmt.Errorf("bind %q: %w", s.endpoint, err)
		}
		return nil
	}
	if err := sub.Connect(s.endpoint); err != nil {
		return fmt.Errorf("connect to %q: %w", s.endpoint, err)
	}
	return nil
}

func (s *subscription) openMonitor(address string) (err error) {
	if s.monitor, err = s.owner.zctx.NewSocket(zmq4.PAIR); err != nil {
		return err
	}
	s.owner.watch(s.monitor, s)
	if err := s.monitor.SetRcvhwm(0); err != nil { // see close
		return err
	}
	return s.monitor.Connect(address)
}

// close closes the sockets. Monitoring ends first: ZeroMQ's I/O thread waits, for ever and for all sockets, when it has
// an event to tell and nobody reads the monitor any more.
func (s *subscription) close() {
	if s.sub != nil {
		_ = s.sub.Monitor("", 0) // it cannot fail on an open socket
	}
	s.owner.unwatch(s.sub)
	s.owner.unwatch(s.monitor)
	s.sub, s.monitor, s.retryAt = nil, nil, time.Time{}
	s.link.closed()
}

// deadline returns when tick has something to do, or the zero time.
func (s *subscription) deadline() time.Time { return sooner(s.retryAt, s.link.deadline()) }

func (s *subscription) tick(now time.Time) {
	switch {
	case due(s.retryAt, now):
		s.start()
		return
	case due(s.link.cutAt, now):
		s.cut()
	}
	s.link.tick(now)
	s.publish()
}

// serve handles what one of the sockets received, and tells whether there may be more.
func (s *subscription) serve(socket *zmq4.Socket) (more bool) {
	if socket == s.monitor {
		s.serveMonitor()
	} else {
		more = s.serveLive()
	}
	s.publish()
	return more
}

func (s *subscription) publish() {
	for _, l := range s.listeners {
		l.publish()
	}
}
