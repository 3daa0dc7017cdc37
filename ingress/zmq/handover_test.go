package zmq_test

import (
	"log/slog"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/ingress/stream"
	"github.com/routerd/routerd/ingress/wire"
	"github.com/routerd/routerd/ingress/zmq"
	"github.com/routerd/routerd/internal/testkit"
)

// handed is where w1's stream stands.
func handed(t *testing.T, in *zmq.DirectIngress) *zmq.Position {
	t.Helper()
	var at *zmq.Position
	if !in.Hand(w1, func(p zmq.Position) { at = &p }) {
		t.Fatal("no position is handed over")
	}
	return at
}

// goOn registers w1 anew from a position.
func goOn(t *testing.T, in *zmq.DirectIngress, p *publisher, s *sink, from *zmq.Position) {
	t.Helper()
	owns := func(rank uint32) bool { return rank < 2 }
	must(t, in.Register(zmq.Source{Worker: w1, Owns: owns, Endpoint: p.endpoint, Replay: p.replay, Sink: s, From: from}))
	p.joined()
}

// onRank is a batch that names a rank.
func onRank(rank byte, events ...[]byte) []byte {
	b := payload(events...)
	b[len(b)-1] = rank
	return b
}

// A registration goes on where the one before stood: the engine is asked from there, and only what is new is applied. An
// answer with one of the first numbers is not taken for the beginning of all.
func TestAStreamIsHandedOver(t *testing.T) {
	for last, hashes := range [][]uint32{{10}, {10, 11}} {
		p, s, in := newPublisher(t, true), newSink(), start(t, quick())
		listen(t, in, p, s)
		parent := -1
		for seq, h := range hashes {
			p.send(uint64(seq), payload(store(parent, h)))
			parent = int(h)
		}
		untilSeq(t, in, uint64(last))
		at := handed(t, in)
		in.Unregister(w1)
		p.keep(uint64(last+1), payload(store(parent, 12)))
		applied := s.count()
		goOn(t, in, p, s, at)
		st := untilSeq(t, in, uint64(last+1))
		if got := overlap(t, s, w1, append(hashes, 12)...); !st.Trusted || st.Restarts != 0 || got != uint32(last+2) || s.count() != applied+1 {
			t.Errorf("status %+v, overlap %d, %d messages", st, got, s.count()-applied)
		}
		if d := cmp.Diff([]uint64{0, uint64(last)}, p.starts()); d != "" {
			t.Error(d)
		}
		p.send(uint64(last+2), payload(drop(10)))
		if st := untilSeq(t, in, uint64(last+2)); overlap(t, s, w1, 10) != 0 || !st.Trusted {
			t.Errorf("status %+v", st)
		}
	}
}

// What an engine that is another one by now stored for any rank is dropped, and its new life is replayed whole.
func TestAStreamThatIsHandedOverFindsAnotherEngine(t *testing.T) {
	p, s, in := newPublisher(t, true), newSink(), start(t, quick())
	rank1 := fleet.Worker{ID: 1, Rank: 1}
	goOn(t, in, p, s, nil)
	p.send(0, onRank(0, store(-1, 10)))
	p.send(1, onRank(1, store(-1, 11)))
	untilSeq(t, in, 1)
	at := handed(t, in)
	if d := cmp.Diff([]fleet.Worker{rank1}, at.Others); d != "" {
		t.Error(d)
	}
	in.Unregister(w1)
	p.kill()
	p.bind(p.endpoint)
	for seq, hash := range []uint32{20, 21, 22} {
		p.keep(uint64(seq), onRank(0, store(-1, hash)))
	}
	goOn(t, in, p, s, at)
	st := untilSeq(t, in, 2)
	if !st.Trusted || st.Restarts != 1 || s.Blocks(w1)[0] != 3 || s.Blocks(rank1)[0] != 0 {
		t.Errorf("status %+v, blocks %v and %v", st, s.Blocks(w1), s.Blocks(rank1))
	}
}

// Without a replay endpoint what was handed over counts, and is not trusted until the engine tells of a clear or begins
// anew. The first message is not taken for an engine's first.
func TestAStreamThatIsHandedOverWithoutReplay(t *testing.T) {
	p, s, in := newPublisher(t, false), newSink(), start(t, quick())
	listen(t, in, p, s)
	p.send(0, payload(store(-1, 10)))
	untilSeq(t, in, 0)
	at := handed(t, in)
	in.Unregister(w1)
	goOn(t, in, p, s, at)
	p.send(1, payload(store(10, 11)))
	st := untilSeq(t, in, 1)
	if st.Trusted || st.Reason != stream.LossReconnect || st.State != stream.Degraded || overlap(t, s, w1, 10, 11) != 2 {
		t.Errorf("status %+v", st)
	}
	p.send(2, payload(cleared(), store(-1, 12)))
	if st := untilSeq(t, in, 2); !st.Trusted || overlap(t, s, w1, 10) != 0 || overlap(t, s, w1, 12) != 1 {
		t.Errorf("status %+v", st)
	}
}

// A position is handed over at a moment at which the sink has all up to there and nothing else.
func TestAHandOverIsOfOneMoment(t *testing.T) {
	p, s, in := newPublisher(t, false), newSink(), start(t, quick())
	listen(t, in, p, s)
	const messages = 400
	var sent sync.WaitGroup
	defer sent.Wait()
	sent.Go(func() {
		for seq := range uint32(messages) {
			p.frames([]byte{}, wire.SequenceFrame(uint64(seq)), payload(store(int(seq)-1, seq)))
		}
	})
	testkit.Until(t, "all messages are applied", func() bool {
		last, blocks := uint64(0), 0
		handed := in.Hand(w1, func(at zmq.Position) { last, blocks = at.Stream.Last(), s.Blocks(w1)[0] })
		if handed && uint64(blocks) != last+1 {
			t.Fatalf("%d blocks at message %d", blocks, last)
		}
		return last == messages-1
	})
}

// Who is not registered, or heard nothing, has nothing to hand over, and nobody waits in vain.
func TestNothingIsHandedOver(t *testing.T) {
	in, err := zmq.New(quick(), slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	must(t, err)
	never := func(zmq.Position) { t.Error("a position is handed over") }
	if in.Hand(w1, never) {
		t.Error("an unknown stream is handed over")
	}
	must(t, in.Register(zmq.Source{Worker: w1, Endpoint: "tcp://127.0.0.1:1", Sink: newSink()}))
	if in.Hand(w1, never) {
		t.Error("a stream that heard nothing is handed over")
	}
	t.Run("while it runs", func(t *testing.T) {
		keepRunning(t, in.Run)
		if in.Hand(w1, never) {
			t.Error("a stream that heard nothing is handed over")
		}
	})
	if in.Hand(w1, never) {
		t.Error("a stream is handed over after the end")
	}
}

// A stream that stored for a rank with a stream of its own is not handed over: together they would be of two moments.
func TestAStreamThatStoredForAnotherOnesRankIsNotHandedOver(t *testing.T) {
	p, s, in := newPublisher(t, false), newSink(), start(t, quick())
	rank1 := fleet.Worker{ID: 1, Rank: 1}
	goOn(t, in, p, s, nil)
	p.send(0, onRank(0, store(-1, 10)))
	untilSeq(t, in, 0)
	must(t, in.Register(zmq.Source{Worker: rank1, Endpoint: "tcp://127.0.0.1:1", Sink: s}))
	handed(t, in)
	p.send(1, onRank(1, store(-1, 11)))
	untilSeq(t, in, 1)
	if in.Hand(w1, func(zmq.Position) { t.Error("a position is handed over") }) {
		t.Error("it is handed over")
	}
	in.Unregister(rank1)
	handed(t, in)
}
