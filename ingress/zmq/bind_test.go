package zmq_test

import (
	"fmt"
	"net"
	"strings"
	"testing"

	zmq4 "github.com/pebbe/zmq4"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/ingress/stream"
	"github.com/routerd/routerd/ingress/wire"
	"github.com/routerd/routerd/ingress/zmq"
	"github.com/routerd/routerd/internal/testkit"
	"github.com/routerd/routerd/kvcache"
)

// freeEndpoint is one to bind, and where engines then connect.
func freeEndpoint(t *testing.T) (ours, theirs string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer func() { _ = ln.Close() }()
	port := ln.Addr().(*net.TCPAddr).Port
	return fmt.Sprintf("tcp://*:%d", port), fmt.Sprintf("tcp://127.0.0.1:%d", port)
}

func TestWeBindWhenTheEngineConnects(t *testing.T) {
	p, s, in := newPublisher(t, false), newSink(), start(t, quick())
	ours, theirs := freeEndpoint(t)
	must(t, in.Register(zmq.Source{Worker: w1, Endpoint: ours, Sink: s}))
	must(t, p.pub.Connect(theirs))
	p.joined()
	p.send(0, payload(store(-1, 10)))
	if st := untilSeq(t, in, 0); !st.Trusted || overlap(t, s, w1, 10) != 1 {
		t.Errorf("status %+v", st)
	}
}

func TestAnEndpointThatIsTakenIsShown(t *testing.T) {
	p, s, in := newPublisher(t, false), newSink(), start(t, quick())
	ours, theirs := freeEndpoint(t)
	holder := newPublisher(t, false)
	must(t, holder.pub.Close())
	holder.bind(theirs)
	must(t, in.Register(zmq.Source{Worker: w1, Endpoint: ours, Sink: s}))
	testkit.Until(t, "the fault is shown", func() bool {
		st := status(t, in)
		return strings.Contains(st.Fault, "bind") && strings.Contains(st.Fault, ours) && st.State == stream.Connecting
	})
	must(t, holder.pub.Close())
	testkit.Until(t, "it is bound once the port is free", func() bool { return status(t, in).Fault == "" })
	must(t, p.pub.Connect(theirs))
	p.joined()
}

// An engine that connects to a bound socket and sends as soon as its connection stands, before the subscription is
// there, loses to ZeroMQ what nobody has subscribed to yet; the router gets that by replay.
func TestAnEngineThatConnectsAndSendsAtOnceLosesNothing(t *testing.T) {
	for round := range 5 {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			p, s, in := newPublisher(t, true), newSink(), start(t, quick())
			ours, theirs := freeEndpoint(t)
			must(t, in.Register(zmq.Source{Worker: w1, Endpoint: ours, Replay: p.replay, Sink: s}))
			testkit.Until(t, "it is bound", func() bool { return status(t, in).Fault == "" })
			monitor := monitored(t, p, p.pub)
			must(t, p.pub.Connect(theirs))
			testkit.Until(t, "the connection stands", func() bool {
				event, _, _, err := monitor.RecvEvent(0)
				return err == nil && event == zmq4.EVENT_HANDSHAKE_SUCCEEDED
			})
			var hashes []uint32
			parent := -1
			for seq := range uint64(100) {
				h := uint32(10 + seq)
				p.send(seq, payload(store(parent, h)))
				parent, hashes = int(h), append(hashes, h)
			}
			p.joined()
			p.send(100, payload(store(parent, 9)))
			if st := untilSeq(t, in, 100); !st.Trusted || st.Lost != 0 || overlap(t, s, w1, append(hashes, 9)...) != 101 {
				t.Errorf("status %+v", st)
			}
		})
	}
}

func monitored(t *testing.T, p *publisher, s *zmq4.Socket) *zmq4.Socket {
	t.Helper()
	must(t, s.Monitor("inproc://monitor-of-test", zmq4.EVENT_ALL))
	m := p.socket(zmq4.PAIR)
	must(t, m.Connect("inproc://monitor-of-test"))
	return m
}

// sendAs sends a message under a topic.
func (p *publisher) sendAs(topic string, seq uint64, payload []byte) {
	p.t.Helper()
	p.frames([]byte(topic), wire.SequenceFrame(seq), payload)
}

// engineOf connects another engine to a bound socket.
func engineOf(t *testing.T, theirs string) *publisher {
	t.Helper()
	p := newPublisher(t, false)
	must(t, p.pub.Connect(theirs))
	p.joined()
	return p
}

func TestWorkersThatShareAnEndpointGetWhatTheirTopicNames(t *testing.T) {
	s, in := newSink(), start(t, quick())
	ours, theirs := freeEndpoint(t)
	w2 := fleet.Worker{ID: 2}
	must(t, in.Register(zmq.Source{Worker: w1, Name: "pod-1", Endpoint: ours, Sink: s}))
	must(t, in.Register(zmq.Source{Worker: w2, Name: "b", IsPod: func(pod string) bool { return pod == "10.0.0.2:8000" }, Endpoint: ours, Sink: s}))
	one, two := engineOf(t, theirs), engineOf(t, theirs)
	one.sendAs("kv@pod-1@org/model@v2", 0, payload(store(-1, 10)))
	two.sendAs("kv@10.0.0.2:8000@m", 0, payload(store(-1, 20)))
	two.sendAs("kv@10.0.0.2:8000@m", 1, payload(store(20, 21)))
	one.sendAs("kv@pod-1@org/model@v2", 1, payload(store(10, 11)))
	for _, topic := range []string{"", "kv@", "kv@pod-1", "kv@pod-12@m", "kv@@m", "KV@pod-1@m"} {
		one.sendAs(topic, 2, payload(store(-1, 66)))
	}
	one.sendAs("kv@pod-1@m", 2, payload(store(11, 12)))
	testkit.Until(t, "both have theirs", func() bool {
		return overlap(t, s, w1, 10, 11, 12) == 3 && overlap(t, s, w2, 20, 21) == 2
	})
	if overlap(t, s, w1, 66)+overlap(t, s, w2, 66) != 0 {
		t.Error("a message of nobody's was applied")
	}
	for _, w := range []fleet.Worker{w1, w2} {
		if st, _ := in.Status(w); !st.Trusted || st.State != stream.Live || st.Gaps != 0 {
			t.Errorf("worker %s: %+v", w, st)
		}
	}
	in.Unregister(w1)
	one.sendAs("kv@pod-1@m", 3, payload(store(12, 13)))
	two.sendAs("kv@10.0.0.2:8000@m", 2, payload(store(21, 22)))
	testkit.Until(t, "the other goes on", func() bool { return overlap(t, s, w2, 20, 21, 22) == 3 })
	if overlap(t, s, w1, 13)+overlap(t, s, w2, 13) != 0 {
		t.Error("a message of the worker that has gone was applied")
	}
	must(t, in.Register(zmq.Source{Worker: w1, Name: "pod-1", Endpoint: ours, Sink: s}))
	one.sendAs("kv@pod-1@m", 4, payload(store(12, 14)))
	untilSeq(t, in, 4)
}

func TestATopicThatDoesNotFitIsAFault(t *testing.T) {
	s, in := newSink(), start(t, quick())
	ours, theirs := freeEndpoint(t)
	must(t, in.Register(zmq.Source{Worker: w1, Name: "pod-1", Endpoint: ours, Sink: s}))
	p := engineOf(t, theirs)
	p.sendAs("kv@pod-2@m", 0, payload(store(-1, 66)))
	testkit.Until(t, "the fault is told", func() bool { return strings.Contains(status(t, in).Fault, "a pod that is not this worker") })
	p.sendAs("", 0, payload(store(-1, 10)))
	untilSeq(t, in, 0)
	testkit.Until(t, "the fault is over", func() bool { return status(t, in).Fault == "" })
	must(t, in.Register(zmq.Source{Worker: fleet.Worker{ID: 2}, Name: "pod-2", Endpoint: ours, Sink: s}))
	p.sendAs("", 1, payload(store(-1, 67)))
	testkit.Until(t, "the fault is told", func() bool { return strings.Contains(status(t, in).Fault, "the topic of what comes names none") })
	if overlap(t, s, w1, 66)+overlap(t, s, w1, 67) != 0 {
		t.Error("a message of nobody's was applied")
	}
}

func TestOfSharersThatComeBackTheirEngineIsChecked(t *testing.T) {
	p, s, in := newPublisher(t, true), newSink(), start(t, quick())
	ours, theirs := freeEndpoint(t)
	w2 := fleet.Worker{ID: 2}
	must(t, in.Register(zmq.Source{Worker: w1, Name: "pod-1", Endpoint: ours, Replay: p.replay, Sink: s}))
	must(t, in.Register(zmq.Source{Worker: w2, Name: "pod-2", Endpoint: ours, Sink: s}))
	must(t, p.pub.Connect(theirs))
	p.joined()
	two := engineOf(t, theirs)
	topic := "kv@pod-1@m"
	for seq := range uint64(3) {
		p.keep(seq, payload(store(-1, uint32(10+seq))))
		p.sendAs(topic, seq, payload(store(-1, uint32(10+seq))))
		two.sendAs("kv@pod-2@m", seq, payload(store(-1, uint32(10+seq))))
	}
	untilSeq(t, in, 2)
	testkit.Until(t, "the other has all", func() bool { return overlap(t, s, w2, 12) == 1 })
	// The engine restarts, and its numbers have passed the last one before it is heard: only the reconnect tells.
	p.kill()
	p.pub = p.socket(zmq4.XPUB)
	must(t, p.pub.SetXpubVerboser(1))
	must(t, p.pub.Connect(theirs))
	p.joined()
	for seq := range uint64(4) {
		p.keep(seq, payload(store(-1, uint32(30+seq))))
	}
	p.sendAs(topic, 3, payload(store(-1, 33)))
	testkit.Until(t, "the restart is found", func() bool { return status(t, in).Restarts == 1 && overlap(t, s, w1, 33) == 1 })
	if overlap(t, s, w1, 10) != 0 || overlap(t, s, w1, 30) != 1 {
		t.Error("the old life's blocks are there")
	}
	two.sendAs("kv@pod-2@m", 3, payload(store(-1, 13)))
	testkit.Until(t, "the other goes on", func() bool { return overlap(t, s, w2, 13) == 1 })
	if st, _ := in.Status(w2); !st.Trusted || st.Restarts != 0 || st.State != stream.Live {
		t.Errorf("the other: %+v", st)
	}
}

func TestOnlyOneRankOfAWorkerBindsAnEndpoint(t *testing.T) {
	s, in := newSink(), start(t, quick())
	ours, theirs := freeEndpoint(t)
	must(t, in.Register(zmq.Source{Worker: w1, Name: "pod-1", Endpoint: ours, Sink: s}))
	rank1 := fleet.Worker{ID: 1, Rank: 1}
	err := in.Register(zmq.Source{Worker: rank1, Name: "pod-1", Endpoint: ours, Sink: s})
	if err == nil || !strings.Contains(err.Error(), `"`+ours+`" is not allowed; allowed: a port that rank 0 of this worker does not have`) {
		t.Errorf("got %v", err)
	}
	in.Unregister(w1)
	must(t, in.Register(zmq.Source{Worker: rank1, Name: "pod-1", Endpoint: ours, Sink: s}))
	engineOf(t, theirs)
}

// What connects and is no engine does not end the stream of the one that is.
func TestAStrangerAtABoundSocketChangesNothing(t *testing.T) {
	p, s, in := newPublisher(t, false), newSink(), start(t, quick())
	ours, theirs := freeEndpoint(t)
	must(t, in.Register(zmq.Source{Worker: w1, Name: "pod-1", Endpoint: ours, Sink: s}))
	must(t, p.pub.Connect(theirs))
	p.joined()
	p.send(0, payload(store(-1, 10)))
	untilSeq(t, in, 0)
	talk(t, theirs, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	testkit.Until(t, "the stranger is told of", func() bool { return strings.Contains(status(t, in).Fault, "handshake") })
	p.send(1, payload(store(10, 11)))
	if st := untilSeq(t, in, 1); !st.Trusted || st.State != stream.Live {
		t.Errorf("status %+v", st)
	}
	if n := status(t, in).Dropped[kvcache.DropTooLarge.String()]; n != 0 {
		t.Errorf("%d too large", n)
	}
}

// Engines connect in any order, also before their worker is known.
func TestAnotherEngineAtABoundSocketIsNoReconnect(t *testing.T) {
	p, s, in := newPublisher(t, false), newSink(), start(t, quick())
	ours, theirs := freeEndpoint(t)
	must(t, in.Register(zmq.Source{Worker: w1, Name: "pod-1", Endpoint: ours, Sink: s}))
	must(t, p.pub.Connect(theirs))
	p.joined()
	p.sendAs("kv@pod-1@m", 0, payload(store(-1, 10)))
	untilSeq(t, in, 0)
	other := engineOf(t, theirs)
	other.sendAs("kv@pod-2@m", 0, payload(store(-1, 66)))
	testkit.Until(t, "the other is heard", func() bool { return status(t, in).Fault != "" })
	p.sendAs("kv@pod-1@m", 1, payload(store(10, 11)))
	if st := untilSeq(t, in, 1); !st.Trusted || overlap(t, s, w1, 10, 11) != 2 {
		t.Errorf("status %+v", st)
	}
	p.sendAs("kv@pod-1@m", 0, payload(store(-1, 12)))
	if st := untilSeq(t, in, 0); st.Restarts != 1 || overlap(t, s, w1, 10) != 0 {
		t.Errorf("status %+v after a restart", st)
	}
}
