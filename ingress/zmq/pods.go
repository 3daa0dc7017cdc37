package zmq

import (
	"slices"
	"time"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/ingress/stream"
	"github.com/routerd/routerd/ingress/wire"
	"github.com/routerd/routerd/kvcache"
)

// strangersTold is how many messages of nobody's a subscription tells of, so that a flood of them is no flood of the log.
const strangersTold = 8

// serveLive handles live messages. A reconnect is looked for after some were received and before any of them is handled,
// since the messages behind it mean something else.
func (s *subscription) serveLive() (more bool) {
	for t := newTurn(); t.goesOn(); {
		received := s.owner.receiver.receive(s.sub)
		s.serveMonitor()
		for _, frames := range received {
			now := time.Now() // the one before may have taken long
			if l := s.recipient(frames, now); l != nil {
				s.reassure(l, now)
				l.heard = s.link.shakes
				l.live(frames, now)
			}
		}
		if len(received) == 0 {
			return false
		}
		t.left -= len(received)
	}
	return true
}

// recipient is whose message it is; nil for nobody's. Where we bind, the topic may name the worker; where it does not,
// there must be one worker alone.
func (s *subscription) recipient(frames [][]byte, now time.Time) *listener {
	first := s.listeners[0]
	if !s.bind {
		return first
	}
	pod, named := wire.TopicPod(frames[0])
	if !named && len(s.listeners) == 1 {
		return first
	}
	if l := s.byPod[pod]; named && l != nil && l.src.isPod(pod) {
		return l
	}
	delete(s.byPod, pod)
	for _, l := range s.listeners {
		if named && l.src.isPod(pod) {
			s.byPod[pod] = l
			return l
		}
	}
	s.stranger(pod, named, now)
	return nil
}

// stranger counts a message of nobody's. It is a fault of the workers there where there is one alone, or nobody is named.
func (s *subscription) stranger(pod string, named bool, now time.Time) {
	s.ingress.metrics.dropped[kvcache.DropForeignTopic].Inc()
	switch {
	case !named:
		s.accuse("several workers share the endpoint, and the topic of what comes names none")
		s.link.calm(now)
	case len(s.listeners) == 1:
		s.accuse("the topic of what comes names a pod that is not this worker")
		s.link.calm(now)
	}
	if s.strangers >= strangersTold {
		return
	}
	s.strangers++
	if named {
		s.ingress.log.Warn("KV events of a pod that is none of the workers of its endpoint are dropped", "endpoint", s.endpoint, "pod", pod[:min(len(pod), fleet.MaxNameBytes)])
	} else {
		s.ingress.log.Warn("KV events whose topic names no pod are dropped: several workers share their endpoint", "endpoint", s.endpoint)
	}
}

// reassure has a listener look whether its engine is the same, where a connection that may have been its has ended since.
// Which of those who share a socket it was does not show; one that cannot be asked is spared unless all have ended.
func (s *subscription) reassure(l *listener, now time.Time) {
	if !l.unsure {
		return
	}
	l.unsure = false
	if l.src.Replay != "" || l.stream.Status().State == stream.Disconnected {
		l.stream.Disconnected()
		l.stream.Connected(now)
	}
}

// forget takes a listener out.
func (s *subscription) forget(l *listener) {
	s.listeners = slices.DeleteFunc(s.listeners, func(o *listener) bool { return o == l })
	for pod, o := range s.byPod {
		if o == l {
			delete(s.byPod, pod)
		}
	}
}
