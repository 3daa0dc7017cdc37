package zmq

import (
	"fmt"
	"syscall"
	"time"

	zmq4 "github.com/pebbe/zmq4"

	"github.com/routerd/routerd/kvcache"
)

// linkEvents are what a monitor is asked for.
const linkEvents = zmq4.EVENT_HANDSHAKE_SUCCEEDED | zmq4.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq4.EVENT_HANDSHAKE_FAILED_AUTH |
	zmq4.EVENT_HANDSHAKE_FAILED_NO_DETAIL | zmq4.EVENT_DISCONNECTED | zmq4.EVENT_CONNECT_RETRIED

// cutWait is how long ZeroMQ gets to say that it connects again. It says so at once, or never: after a message that is
// too large and what is no ZMTP it leaves the endpoint alone for good, and tells nobody.
const cutWait = 500 * time.Millisecond

// link is what is known of a socket's connections.
type link struct {
	cfg *Config

	shakes   int       // handshakes so far
	up       int       // connections that stand; one at most unless the socket binds
	ended    bool      // one of them has ended and none has begun since
	failing  bool      // a handshake has failed, whose connection is about to end
	stood    bool      // the connection that ended last had stood
	fault    string    // what is wrong; empty when nothing is known to be
	told     []string  // the faults that were told since nothing was
	failures int       // in a row
	cutAt    time.Time // when the connection that ended counts as cut off; zero for not
	calmAt   time.Time // when fault is over; zero for not
}

func (k *link) closed() { k.up, k.failing, k.cutAt, k.calmAt = 0, false, time.Time{}, time.Time{} }

func (k *link) deadline() time.Time { return sooner(k.cutAt, k.calmAt) }

func (k *link) tick(now time.Time) {
	if due(k.calmAt, now) {
		k.well()
		k.calmAt = time.Time{}
	}
}

// well ends what is wrong.
func (k *link) well() { k.fault, k.told, k.failures = "", nil, 0 }

// calm has the fault end once nothing has gone wrong for longer than the longest back-off.
func (k *link) calm(now time.Time) {
	if k.fault != "" {
		k.calmAt = now.Add(2 * k.cfg.ReconnectIvlMax)
	}
}

func (s *subscription) serveMonitor() {
	for s.monitor != nil {
		event, _, value, err := s.monitor.RecvEvent(zmq4.DONTWAIT)
		if err != nil {
			return
		}
		s.follow(event, value, time.Now())
	}
}

// follow takes over what the monitor says. A handshake that fails is followed by the end of its connection, before
// anything else.
func (s *subscription) follow(event zmq4.Event, value int, now time.Time) {
	k := &s.link
	switch event {
	case zmq4.EVENT_HANDSHAKE_SUCCEEDED:
		k.up++
		k.shakes++
		k.cutAt = time.Time{}
		k.calm(now)
		s.connected(now)
		k.ended = false
	case zmq4.EVENT_CONNECT_RETRIED:
		k.cutAt = time.Time{}
	case zmq4.EVENT_DISCONNECTED:
		k.stood, k.failing = !k.failing, false
		if !s.bind {
			k.cutAt = now.Add(cutWait)
		}
		if k.stood {
			k.up, k.ended = max(0, k.up-1), true
			s.disconnected(now)
		}
	default:
		if !k.failing { // a second one of the same connection says less
			k.failing = true
			s.accuse(handshakeFault(event, value, k.cfg.Curve.on()))
		}
		if s.bind {
			k.calm(now)
		}
	}
}

// connected tells the listener. Which of those who share the socket it is shows with the first message: see reassure. A
// further connection at a socket that binds may be of an engine whose worker is still to come: a listener that cannot
// ask is spared.
func (s *subscription) connected(now time.Time) {
	if len(s.listeners) == 1 && (!s.bind || s.link.up == 1 || s.listeners[0].src.Replay != "") {
		s.listeners[0].stream.Connected(now)
		return
	}
	if s.link.ended {
		s.doubt()
	}
}

// disconnected tells the listeners when no connection is left. A new one may stand before the old one ends: who was heard
// since the last handshake may have been heard over the new one, and need not be heard again.
func (s *subscription) disconnected(now time.Time) {
	if s.link.up > 0 {
		s.doubt()
		for _, l := range s.listeners {
			if l.heard == s.link.shakes {
				s.reassure(l, now)
			}
		}
		return
	}
	for _, l := range s.listeners {
		l.stream.Disconnected()
	}
}

func (s *subscription) doubt() {
	for _, l := range s.listeners {
		l.unsure = true
	}
}

// cut opens the sockets anew after ZeroMQ has left the endpoint alone.
func (s *subscription) cut() {
	why := s.link.fault // of the handshake
	if s.link.stood {
		why = fmt.Sprintf("a message was larger than ingress.max_message (%d bytes), or broken: the connection was closed", s.link.cfg.MaxMessage)
		for _, l := range s.listeners {
			l.drops[kvcache.DropTooLarge]++
		}
	}
	s.again(why)
}

// Values of EVENT_HANDSHAKE_FAILED_PROTOCOL (zmq_socket_monitor(3)).
const (
	failedCrypto    = 0x11000001
	failedMechanism = 0x11000002
)

func handshakeFault(event zmq4.Event, value int, curve bool) string {
	switch {
	case event == zmq4.EVENT_HANDSHAKE_FAILED_PROTOCOL && value == failedCrypto:
		return "the handshake failed: the CURVE keys do not fit"
	case event == zmq4.EVENT_HANDSHAKE_FAILED_PROTOCOL && value == failedMechanism:
		return "the handshake failed: one side uses CURVE and the other does not"
	case event == zmq4.EVENT_HANDSHAKE_FAILED_PROTOCOL:
		return fmt.Sprintf("the handshake failed: the peer does not follow ZMTP (%#x)", value)
	case event == zmq4.EVENT_HANDSHAKE_FAILED_AUTH:
		return fmt.Sprintf("the handshake failed: the peer refuses us (%d)", value)
	case curve:
		return "the engine ended the connection during the handshake; perhaps its key is another than ingress.curve.server_key"
	default:
		return fmt.Sprintf("the connection ended during the handshake: %v", syscall.Errno(value))
	}
}

// sooner returns the earlier of two times, of which zero is never.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// due tells whether a time, of which zero is never, has come.
func due(at, now time.Time) bool { return !at.IsZero() && !now.Before(at) }
