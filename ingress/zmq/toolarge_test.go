package zmq_test

import (
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/routerd/routerd/ingress/stream"
	"github.com/routerd/routerd/ingress/zmq"
	"github.com/routerd/routerd/internal/testkit"
	"github.com/routerd/routerd/kvcache"
)

// talk sends text to a TCP endpoint and hangs up.
func talk(t *testing.T, endpoint, text string) {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(endpoint, "tcp://"))
	must(t, err)
	_, err = io.WriteString(c, text)
	must(t, errors.Join(err, c.Close()))
}

// small has a bound that a message of a test passes.
func small() zmq.Config {
	cfg := quick()
	cfg.MaxMessage = 1 << 10
	return cfg
}

// large is a batch of more than that.
func large() []byte {
	hashes := make([]uint32, 300)
	for i := range hashes {
		hashes[i] = uint32(5000 + i)
	}
	return payload(store(-1, hashes...))
}

func tooLarge(st zmq.Status) uint64 { return st.Dropped[kvcache.DropTooLarge.String()] }

func TestAMessageThatIsTooLargeIsToldAndTheSocketOpenedAnew(t *testing.T) {
	for name, c := range map[string]struct {
		replay, kept bool // of the large message
		state        stream.State
		reason       string
		asked        int
	}{
		"without replay":               {false, false, stream.Degraded, stream.LossGap, 0},
		"what lacks is replayed":       {true, false, stream.Live, "", 2},
		"the replay has the large one": {true, true, stream.Degraded, stream.NoAnswer.String(), 2 + quick().ReplayTries},
	} {
		t.Run(name, func(t *testing.T) {
			p, s, cfg := newPublisher(t, c.replay), newSink(), small()
			in := start(t, cfg)
			listen(t, in, p, s)
			p.send(0, payload(store(-1, 10)))
			untilSeq(t, in, 0)
			if c.kept {
				p.keep(1, large())
			} else {
				p.keep(1, payload(store(10, 11)))
			}
			p.frames(nil, []byte{0, 0, 0, 0, 0, 0, 0, 1}, large())
			testkit.Until(t, "it is told", func() bool {
				st := status(t, in)
				return tooLarge(st) == 1 && strings.Contains(st.Fault, "ingress.max_message (1024 bytes)")
			})
			p.joined()
			p.send(2, payload(store(10, 12)))
			testkit.Until(t, "the stream goes on", func() bool {
				st := status(t, in)
				return st.LastSeq == 2 && st.State == c.state && st.Reason == c.reason && st.Trusted == (c.state == stream.Live)
			})
			if overlap(t, s, w1, 10, 12) != 2 {
				t.Error("the next message was not applied")
			}
			if n := len(p.starts()); n > c.asked {
				t.Errorf("asked %d times: %v", n, p.starts())
			}
			testkit.Until(t, "the fault is over", func() bool { return status(t, in).Fault == "" })
		})
	}
}

func TestAPublisherThatKeepsSendingTooLargeMessagesIsLeftAloneMoreAndMore(t *testing.T) {
	p, s, cfg := newPublisher(t, true), newSink(), small()
	cfg.ReconnectIvl, cfg.ReconnectIvlMax = 10*time.Millisecond, 300*time.Millisecond
	in := start(t, cfg)
	listen(t, in, p, s)
	p.send(0, payload(store(-1, 10)))
	untilSeq(t, in, 0)
	began := time.Now()
	for seq := uint64(1); tooLarge(status(t, in)) < 6; seq++ {
		p.frames(nil, []byte{0, 0, 0, 0, 0, 0, 0, byte(seq)}, large())
		if m, err := p.pub.RecvBytes(0); err == nil && len(m) > 0 {
			continue // it joined or left
		}
	}
	// 10, 20, 40, 80, 160 ms between them, and ZeroMQ's silence each time.
	if took := time.Since(began); took < 5*(310*time.Millisecond+5*time.Millisecond) {
		t.Errorf("six times in %s", took)
	}
	if n := len(p.starts()); n > 2+2*6 {
		t.Errorf("asked %d times", n)
	}
	p.send(200, payload(store(-1, 20)))
	testkit.Until(t, "it goes on", func() bool {
		p.send(201, payload(store(-1, 21)))
		return overlap(t, s, w1, 21) == 1
	})
}

func TestAReplayWithAMessageThatIsTooLargeEndsDegraded(t *testing.T) {
	p, s, cfg := newPublisher(t, true), newSink(), small()
	in := start(t, cfg)
	p.keep(0, payload(store(-1, 10)))
	p.keep(1, large())
	p.keep(2, payload(store(10, 12)))
	listen(t, in, p, s)
	p.send(3, payload(store(12, 13)))
	defer func() { t.Logf("%+v, asked from %v", status(t, in), p.starts()) }()
	testkit.Until(t, "it is given up", func() bool {
		st := status(t, in)
		return st.State == stream.Degraded && st.LastSeq == 3 && st.Lost == 2 && !st.Trusted && st.Reason == stream.NoAnswer.String() && len(p.starts()) >= cfg.ReplayTries
	})
	<-time.After(3 * cfg.ReplayRetryMax)
	if n := len(p.starts()); n > 1+cfg.ReplayTries {
		t.Errorf("asked %d times: %v", n, p.starts())
	}
	if overlap(t, s, w1, 10) != 1 {
		t.Error("what came before it was not applied")
	}
}

func TestWhatIsNoZeroMQIsToldAndTriedAgain(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	served := make(chan int, 1)
	go func() {
		n := 0
		for {
			c, err := ln.Accept()
			if err != nil {
				served <- n
				return
			}
			n++
			_, _ = io.WriteString(c, "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
			_, _ = io.CopyN(io.Discard, c, 10)
			_ = c.Close()
		}
	}()
	in := start(t, quick())
	must(t, in.Register(zmq.Source{Worker: w1, Name: "w1", Endpoint: "tcp://" + ln.Addr().String(), Sink: newSink()}))
	testkit.Until(t, "it is told", func() bool { st := status(t, in); return strings.Contains(st.Fault, "handshake") && tooLarge(st) == 0 })
	must(t, ln.Close())
	p := newPublisher(t, false)
	p.kill()
	p.bind("tcp://" + ln.Addr().String())
	p.joined()
	testkit.Until(t, "it is well", func() bool { st := status(t, in); return st.Fault == "" && st.State == stream.Unsynced })
	if n := <-served; n < 1 || n > 200 {
		t.Errorf("%d connections", n)
	}
}
