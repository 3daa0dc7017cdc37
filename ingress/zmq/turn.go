package zmq

import (
	"time"

	"github.com/routerd/routerd/ingress/stream"
)

// deadline returns when tick has something to do, or the zero time.
func (l *listener) deadline() time.Time {
	next := l.stream.Deadline()
	if !l.retryAt.IsZero() {
		next = l.retryAt
	}
	if at := l.awayAt(); !at.IsZero() && (next.IsZero() || at.Before(next)) {
		return at
	}
	return next
}

func (l *listener) tick(now time.Time) {
	if at := l.awayAt(); !at.IsZero() && !now.Before(at) {
		l.away = true
		l.ingress.log.Warn("no connection to the publisher of KV events", "worker", l.src.Name, "rank", l.src.Worker.Rank, "endpoint", l.src.Endpoint)
	}
	switch {
	case l.retryAt.IsZero():
		l.stream.Tick(now)
	case !now.Before(l.retryAt):
		l.start()
		return
	}
	l.publish()
}

// awayAt is when it is to be told that the publisher is away; zero for not.
func (l *listener) awayAt() time.Time {
	if l.alone.IsZero() || l.away {
		return time.Time{}
	}
	return l.alone.Add(l.ingress.cfg.UnconnectedAfter)
}

// hear notes whether there is a connection.
func (l *listener) hear(state stream.State) {
	switch {
	case state == stream.Connecting || state == stream.Disconnected:
		if l.alone.IsZero() {
			l.alone = time.Now()
		}
		return
	case l.away:
		l.ingress.log.Info("connected to the publisher of KV events", "worker", l.src.Name, "rank", l.src.Worker.Rank, "endpoint", l.src.Endpoint)
	}
	l.alone, l.away = time.Time{}, false
}
