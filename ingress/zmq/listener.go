package zmq

import (
	"sync"
	"time"

	zmq4 "github.com/pebbe/zmq4"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/ingress/stream"
	"github.com/routerd/routerd/ingress/wire"
	"github.com/routerd/routerd/kvcache"
)

// Publishers drop what a slow reader of a replay leaves, so that much of it may wait here: replayBuffer bytes with the
// kernel and replayHWM messages with ZeroMQ.
const (
	replayBuffer = 4 << 20
	replayHWM    = 100_000
)

// listener is one registered worker and rank. It belongs to its owner's goroutine, except for what mu guards.
type listener struct {
	ingress *DirectIngress
	owner   *owner
	src     Source
	stream  *stream.Stream

	sub    *subscription // nil until its owner has taken it in
	dealer *zmq4.Socket  // of the running replay

	fed     map[fleet.Worker]struct{} // the ranks that this stream stored blocks for
	began   bool                      // a message was applied since the start or the last clear
	drops   kvcache.DropCounts
	lastAt  time.Time
	alone   time.Time          // since when there is no connection; zero while there is one
	away    bool               // that has been told
	unsure  bool               // the engine's connection may be another one: see reassure
	heard   int                // handshakes of the subscription when it was last heard
	told    stream.Status      // what publish said last
	counted kvcache.DropCounts // what the metrics have of drops

	shown bool // publish was called

	mu        sync.Mutex // guards all below
	snap      Status
	snapDrops kvcache.DropCounts
}

func newListener(d *DirectIngress, o *owner, src Source) *listener {
	l := &listener{ingress: d, owner: o, src: src, fed: map[fleet.Worker]struct{}{}}
	cfg := d.cfg.stream()
	cfg.FromOne = src.Engine == EngineLLMD
	l.stream = stream.New(cfg, src.Replay != "", l)
	if src.From != nil {
		l.resume(src.From)
	}
	return l
}

// close ends the listener: nothing is applied any more.
func (l *listener) close() {
	l.EndAsk()
	if l.shown {
		l.ingress.metrics.streams[l.told.State].Dec()
	}
}

// serve handles what the replay socket received, and tells whether there may be more.
func (l *listener) serve(s *zmq4.Socket) (more bool) {
	more = l.serveReplay(s)
	l.publish()
	return more
}

// live handles a live message.
func (l *listener) live(frames [][]byte, now time.Time) {
	seq, payload, err := wire.ParseLive(frames)
	if err != nil {
		l.drops[kvcache.DropCorruptMessage]++
		return
	}
	l.stream.Live(seq, payload, now)
}

// serveReplay handles replay answers until the replay ends or is asked anew.
func (l *listener) serveReplay(s *zmq4.Socket) (more bool) {
	for t := newTurn(); t.goesOn(); {
		if l.dealer != s {
			return false
		}
		received := l.owner.receiver.receive(s)
		for _, frames := range received {
			if l.dealer != s {
				return false // what else it answered to that question is of no use
			}
			l.answer(frames)
		}
		if len(received) == 0 {
			return false
		}
		t.left -= len(received)
	}
	return true
}

// answer handles a replay answer.
func (l *listener) answer(frames [][]byte) {
	seq, payload, end, err := wire.ParseReply(frames)
	switch {
	case err != nil:
		l.drops[kvcache.DropCorruptMessage]++
	case end:
		l.stream.AnswerEnd(time.Now())
	default:
		l.stream.Answer(seq, payload, time.Now())
	}
}

// publish shows and tells what has changed since it was last called.
func (l *listener) publish() {
	st := l.stream.Status()
	fault := ""
	if l.sub != nil {
		fault = l.sub.link.fault
	}
	l.hear(st.State)
	l.drops[kvcache.DropDuplicateMessage] = st.Counts.Duplicates
	m := l.ingress.metrics
	m.count(l.told.Counts, st.Counts)
	m.drop(&l.counted, &l.drops)
	l.counted = l.drops
	snap := Status{
		State: st.State, Unconnected: l.away, Fault: fault, LastSeq: st.LastSeq, Seen: st.Seen, Trusted: st.Trusted, Reason: st.Reason,
		Gaps: st.Counts.Gaps, Lost: st.Counts.Lost, Restarts: st.Counts.Restarts, LastEventAt: l.lastAt,
	}
	l.mu.Lock()
	l.snap, l.snapDrops = snap, l.drops
	l.mu.Unlock()
	before, first := l.told, !l.shown
	l.told, l.shown = st, true
	if first {
		m.streams[st.State].Inc()
	} else if before.State != st.State {
		m.streams[before.State].Dec()
		m.streams[st.State].Inc()
	}
	if first || before.State != st.State || before.Trusted != st.Trusted || before.Reason != st.Reason || before.Counts.Restarts != st.Counts.Restarts {
		l.report(before, st)
		snap.Dropped = l.drops.Map()
		l.src.Sink.State(l.src.Worker, snap)
	}
}

// report logs what an operator wants to know once.
func (l *listener) report(before, now stream.Status) {
	log := l.ingress.log.With("worker", l.src.Name, "rank", l.src.Worker.Rank, "state", now.State.String())
	switch {
	case now.Counts.Restarts > before.Counts.Restarts:
		log.Info("engine started anew: its blocks are dropped")
	case now.Reason != "" && now.Reason != before.Reason:
		log.Warn("KV events were lost: the worker's index is not trusted", "reason", now.Reason, "missing", now.Counts.Gaps, "replay", l.src.Replay)
	default:
		log.Debug("KV event stream changed", "trusted", now.Trusted)
	}
}

func (l *listener) status() Status {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.snap
	s.Dropped = l.snapDrops.Map()
	return s
}
