package zmq

import (
	"time"

	"github.com/routerd/routerd/ingress/stream"
)

const (
	// perTurn is how many messages of one socket are handled before the others get their turn.
	perTurn = 256
	// turnTime is how long they may take; what has been received by then is handled too.
	turnTime = 5 * time.Millisecond
)

// turn is the share of one socket.
type turn struct {
	left int
	end  time.Time
}

func newTurn() *turn { return &turn{perTurn, time.Now().Add(turnTime)} }

func (t *turn) goesOn() bool {
	return t.left > 0 && time.Now().Before(t.end)
}

// deadline returns when tick has something to do, or the zero time.
func (l *listener) deadline() time.Time { return sooner(l.stream.Deadline(), l.awayAt()) }

func (l *listener) tick(now time.Time) {
	if due(l.awayAt(), now) {
		l.away = true
		l.ingress.log.Warn("no connection to the publisher of KV events", "worker", l.src.Name, "rank", l.src.Worker.Rank, "endpoint", l.src.Endpoint)
	}
	l.stream.Tick(now)
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
