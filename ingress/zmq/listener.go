package zmq

import (
	"fmt"
	"sync"
	"time"

	zmq4 "github.com/pebbe/zmq4"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/ingress/stream"
	"github.com/routerd/routerd/ingress/wire"
	"github.com/routerd/routerd/kvcache"
)

// perTurn is how many messages of one socket are handled before the others get their turn.
const perTurn = 256

// perLook and perLookBytes are how many messages, and of what size, are received between two looks for a reconnect.
const (
	perLook      = 16
	perLookBytes = 1 << 20
)

// replayBuffer is the kernel's receive buffer for replays, in bytes: publishers drop what a slow reader leaves.
const replayBuffer = 4 << 20

// listener is one registered worker and rank. It belongs to its owner's goroutine, except for what mu guards.
type listener struct {
	ingress *DirectIngress
	owner   *owner
	src     Source
	stream  *stream.Stream

	sub, monitor, dealer *zmq4.Socket

	fed     map[fleet.Worker]struct{} // the ranks that this stream stored blocks for
	began   bool                      // a message was applied since the start or the last clear
	drops   kvcache.DropCounts
	lastAt  time.Time
	refused string
	retryAt time.Time          // when to try to open the sockets again
	delay   time.Duration      // before the next such try
	alone   time.Time          // since when there is no connection; zero while there is one
	away    bool               // that has been told
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
	return l
}

// start opens the sockets, or sees to another try: a port may be taken for a moment by the socket before this one.
func (l *listener) start() {
	l.retryAt = time.Time{}
	err := l.open()
	if err != nil {
		l.closeLive()
		cfg := l.ingress.cfg
		l.delay = min(max(2*l.delay, cfg.ReconnectIvl), cfg.ReconnectIvlMax)
		l.retryAt = time.Now().Add(l.delay)
		if err.Error() != l.refused {
			l.refused = err.Error()
			l.ingress.log.Error("cannot listen to KV events", "worker", l.src.Name, "rank", l.src.Worker.Rank, "err", err)
		}
	} else {
		l.refused, l.delay = "", 0
	}
	l.publish()
}

// open makes the listener's sockets.
func (l *listener) open() error {
	o, cfg := l.owner, l.ingress.cfg
	sub, err := o.zctx.NewSocket(zmq4.SUB)
	if err != nil {
		return fmt.Errorf("make socket: %w", err)
	}
	l.sub = sub
	o.watch(sub, l)
	o.monitors++
	address := fmt.Sprintf("inproc://monitor-%p-%d", o, o.monitors)
	steps := []func() error{
		func() error { return l.prepare(sub) },
		func() error { return sub.SetRcvhwm(cfg.RcvHWM) },
		func() error { return sub.SetSubscribe(l.src.Topic) },
		func() error {
			return sub.Monitor(address, zmq4.EVENT_HANDSHAKE_SUCCEEDED|zmq4.EVENT_DISCONNECTED)
		},
		func() error { return l.openMonitor(address) },
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return fmt.Errorf("set up socket: %w", err)
		}
	}
	if l.src.Bind {
		if err := sub.Bind(l.src.Endpoint); err != nil {
			return fmt.Errorf("bind %q: %w", l.src.Endpoint, err)
		}
		return nil
	}
	if err := sub.Connect(l.src.Endpoint); err != nil {
		return fmt.Errorf("connect to %q: %w", l.src.Endpoint, err)
	}
	return nil
}

func (l *listener) openMonitor(address string) (err error) {
	if l.monitor, err = l.owner.zctx.NewSocket(zmq4.PAIR); err != nil {
		return err
	}
	l.owner.watch(l.monitor, l)
	if err := l.monitor.SetRcvhwm(0); err != nil { // see closeLive
		return err
	}
	return l.monitor.Connect(address)
}

func (l *listener) prepare(s *zmq4.Socket) error {
	return prepareSocket(s, &l.ingress.cfg, int64(l.ingress.cfg.MaxMessage), l.src.Endpoint, l.src.Replay)
}

// close ends the listener: nothing is applied any more.
func (l *listener) close() {
	l.EndAsk()
	l.closeLive()
	l.retryAt = time.Time{}
	if l.shown {
		l.ingress.metrics.streams[l.told.State].Dec()
	}
}

// closeLive closes the live socket and its monitor. Monitoring ends first: ZeroMQ's I/O thread waits, for ever and for
// all sockets, when it has an event to tell and nobody reads the monitor any more.
func (l *listener) closeLive() {
	if l.sub != nil {
		_ = l.sub.Monitor("", 0) // it cannot fail on an open socket
	}
	l.owner.unwatch(l.sub)
	l.owner.unwatch(l.monitor)
	l.sub, l.monitor = nil, nil
}

// serve handles what one of the listener's sockets received.
func (l *listener) serve(s *zmq4.Socket) {
	switch s {
	case l.monitor:
		l.serveMonitor()
	case l.sub:
		l.serveLive()
	case l.dealer:
		l.serveReplay(s)
	}
	l.publish()
}

func (l *listener) serveMonitor() {
	for l.monitor != nil {
		event, _, _, err := l.monitor.RecvEvent(zmq4.DONTWAIT)
		if err != nil {
			return
		}
		switch event {
		case zmq4.EVENT_HANDSHAKE_SUCCEEDED:
			l.stream.Connected(time.Now())
		case zmq4.EVENT_DISCONNECTED:
			l.stream.Disconnected()
		}
	}
}

// serveLive handles live messages. A reconnect is looked for after some were received and before any of them is handled,
// since the messages behind it mean something else.
func (l *listener) serveLive() {
	for range perTurn / perLook {
		received := l.receive()
		l.serveMonitor()
		for i, frames := range received {
			l.live(frames)
			received[i] = nil
		}
		if len(received) == 0 {
			return
		}
	}
}

// receive takes some messages from the live socket, none when none is there. They are valid until the next call.
func (l *listener) receive() [][][]byte {
	some := l.owner.received[:0]
	for size := 0; len(some) < perLook && size < perLookBytes; {
		frames, err := l.sub.RecvMessageBytes(zmq4.DONTWAIT)
		if err != nil {
			break
		}
		some = append(some, frames)
		for _, f := range frames {
			size += len(f)
		}
	}
	l.owner.received = some
	return some
}

func (l *listener) live(frames [][]byte) {
	seq, payload, err := wire.ParseLive(frames)
	if err != nil {
		l.drops[kvcache.DropCorruptMessage]++
		return
	}
	l.stream.Live(seq, payload, time.Now())
}

// serveReplay handles replay answers until the replay ends or is asked anew.
func (l *listener) serveReplay(s *zmq4.Socket) {
	for range perTurn {
		if l.dealer != s {
			return
		}
		frames, err := s.RecvMessageBytes(zmq4.DONTWAIT)
		if err != nil {
			return
		}
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
}

// publish shows and tells what has changed since it was last called.
func (l *listener) publish() {
	st := l.stream.Status()
	if l.refused != "" {
		st.Reason = l.refused
	}
	l.hear(st.State)
	l.drops[kvcache.DropDuplicateMessage] = st.Counts.Duplicates
	m := l.ingress.metrics
	m.count(l.told.Counts, st.Counts)
	m.drop(&l.counted, &l.drops)
	l.counted = l.drops
	snap := Status{
		State: st.State, Unconnected: l.away, LastSeq: st.LastSeq, Seen: st.Seen, Trusted: st.Trusted, Reason: st.Reason,
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
	if first || before.State != st.State || before.Trusted != st.Trusted || before.Reason != st.Reason {
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
		log.Warn("KV events were lost: the worker's index is not trusted", "reason", now.Reason, "missing", now.Counts.Gaps)
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
