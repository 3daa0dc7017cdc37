package zmq

import (
	"maps"
	"slices"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/ingress/stream"
)

// Position is where a registered stream stands.
type Position struct {
	Stream stream.Position
	// Others are the ranks that it stored blocks for beside its own, by id and rank.
	Others []fleet.Worker
}

// Hand has take called with the position of the stream of a worker and rank, at a moment at which the sink has all that
// the stream applied and nothing later. It reports false, and take is not called, where nothing is registered, the stream
// has no position (see stream.Position), or it stored for a rank that is registered too and so stands elsewhere. take runs on the goroutine that applies events, of other streams too: it
// must be quick and must not call the DirectIngress. Hand waits for a turn of that goroutine.
func (d *DirectIngress) Hand(w fleet.Worker, take func(Position)) bool {
	d.mu.Lock()
	l := d.listeners[w]
	registered := map[fleet.Worker]bool{}
	for other := range d.listeners {
		if other.ID == w.ID {
			registered[other] = true
		}
	}
	d.mu.Unlock()
	if l == nil {
		return false
	}
	handed := make(chan bool, 1)
	return l.owner.push(func() { handed <- l.hand(registered, take) }) && <-handed
}

func (l *listener) hand(registered map[fleet.Worker]bool, take func(Position)) bool {
	if _, ok := l.owner.listeners[l]; !ok {
		return false // it has gone meanwhile
	}
	at, ok := l.stream.Position()
	if !ok {
		return false
	}
	others := slices.SortedFunc(maps.Keys(l.fed), fleet.Worker.Compare)
	others = slices.DeleteFunc(others, func(w fleet.Worker) bool { return w == l.src.Worker })
	if slices.ContainsFunc(others, func(w fleet.Worker) bool { return registered[w] }) {
		return false
	}
	take(Position{Stream: at, Others: others})
	return true
}

// resume has a new listener go on from a position.
func (l *listener) resume(from *Position) {
	l.stream.Resume(from.Stream)
	l.began = true
	for _, w := range from.Others {
		l.fed[w] = struct{}{}
	}
}
