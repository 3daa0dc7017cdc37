package zmq_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	zmq4 "github.com/pebbe/zmq4"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/ingress/stream"
	"github.com/routerd/routerd/ingress/wire"
	"github.com/routerd/routerd/ingress/zmq"
	"github.com/routerd/routerd/internal/testkit"
	"github.com/routerd/routerd/kvcache"
)

// tally counts messages and keeps nothing.
type tally struct{ n atomic.Int64 }

func (c *tally) Apply(fleet.Worker, []kvcache.Event) kvcache.Applied {
	c.n.Add(1)
	return kvcache.Applied{}
}
func (*tally) Clear(fleet.Worker)             {}
func (*tally) State(fleet.Worker, zmq.Status) {}

// BenchmarkManyListeners has 5,000 messages a second come to one owner, and tells what CPU that takes; the publishers'
// is part of it.
func BenchmarkManyListeners(b *testing.B) {
	const publishers, pace = 50, time.Millisecond
	for _, n := range []int{50, 250, 500} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			cfg := zmq.DefaultConfig()
			cfg.Owners = 1
			in, err := zmq.New(cfg, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
			must(b, err)
			ctx, cancel := context.WithCancel(b.Context())
			ended := make(chan error, 1)
			go func() { ended <- in.Run(ctx) }()
			var sink tally
			var all []*publisher
			for range publishers {
				all = append(all, newPublisher(b, false))
			}
			for i := range n {
				must(b, in.Register(zmq.Source{Worker: fleet.Worker{ID: fleet.WorkerID(i + 1)}, Endpoint: all[i%publishers].endpoint, Sink: &sink}))
			}
			for i := range n {
				all[i%publishers].joined()
			}
			each := max(1, 5000*int(pace/time.Millisecond)/1000/(n/publishers)) // messages of a publisher at a time
			body := payload(store(-1, 1))
			var seqs [publishers]uint64
			tick := time.NewTicker(pace)
			defer tick.Stop()
			var was syscall.Rusage
			must(b, syscall.Getrusage(syscall.RUSAGE_SELF, &was))
			began, had := time.Now(), sink.n.Load()
			for i := 0; b.Loop(); i++ {
				<-tick.C
				for range each {
					all[i%publishers].frames(nil, wire.SequenceFrame(seqs[i%publishers]), body)
					seqs[i%publishers]++
				}
			}
			took := time.Since(began).Seconds()
			var now syscall.Rusage
			must(b, syscall.Getrusage(syscall.RUSAGE_SELF, &now))
			cpu := time.Duration(now.Utime.Nano() + now.Stime.Nano() - was.Utime.Nano() - was.Stime.Nano()).Seconds()
			b.ReportMetric(float64(sink.n.Load()-had)/took, "msg/s")
			b.ReportMetric(cpu/took, "cores")
			cancel()
			must(b, <-ended)
		})
	}
}

// slow is a sink that takes a while for each message of some workers.
type slow struct {
	*sink
	of   fleet.Worker
	take time.Duration
}

func (s slow) Apply(w fleet.Worker, events []kvcache.Event) kvcache.Applied {
	if w == s.of {
		<-time.After(s.take)
	}
	return s.sink.Apply(w, events)
}

// flood has a publisher of its own send as fast as it can until the test ends.
func flood(t *testing.T, p *publisher, body []byte) {
	t.Helper()
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for seq := uint64(0); ; seq++ {
			select {
			case <-stop:
				return
			default:
				_, _ = p.pub.SendMessage("", wire.SequenceFrame(seq), body)
			}
		}
	}()
	t.Cleanup(func() { close(stop); <-ended })
}

func TestAFloodingPublisherDoesNotHoldUpAQuietOneOfItsOwner(t *testing.T) {
	loud, quiet := hasty(t, false), newPublisher(t, false)
	cfg := quick()
	cfg.Owners, cfg.RcvHWM = 1, 1000
	in, s := start(t, cfg), slow{newSink(), fleet.Worker{ID: 2}, 2 * time.Millisecond}
	must(t, in.Register(zmq.Source{Worker: s.of, Name: "loud", Endpoint: loud.endpoint, Sink: s}))
	must(t, in.Register(zmq.Source{Worker: w1, Name: "quiet", Endpoint: quiet.endpoint, Sink: s}))
	loud.joined()
	quiet.joined()
	flood(t, loud, payload(store(-1, 1)))
	testkit.Until(t, "the flood has come", func() bool { return s.count() > 50 })
	var waits []time.Duration
	for seq := range uint64(21) {
		began := time.Now()
		quiet.send(seq, payload(store(-1, uint32(100+seq))))
		testkit.Until(t, "it is applied", func() bool { return overlap(t, s.sink, w1, uint32(100+seq)) == 1 })
		waits = append(waits, time.Since(began))
	}
	slices.Sort(waits)
	t.Logf("a quiet publisher's messages waited %s to %s, half of them at most %s", waits[0], waits[20], waits[10])
	// A turn of 256 messages would take half a second.
	if waits[10] > 256*time.Millisecond {
		t.Errorf("half of them waited longer than %s", waits[10])
	}
}

// hasty is a publisher that drops what its reader does not take, as engines do.
func hasty(t *testing.T, replay bool) *publisher {
	t.Helper()
	p := newPublisher(t, replay)
	must(t, p.pub.Close())
	p.secure = func(s *zmq4.Socket) { must(t, errors.Join(s.SetSndhwm(10), s.SetSndbuf(4<<10))) }
	p.bind("tcp://127.0.0.1:*")
	return p
}

// gated is a sink that waits with its first message until the gate is open.
type gated struct {
	*sink
	gate chan struct{}
}

func (s gated) Apply(w fleet.Worker, events []kvcache.Event) kvcache.Applied {
	<-s.gate
	return s.sink.Apply(w, events)
}

func TestWhatAFloodLosesIsAGapThatIsReplayed(t *testing.T) {
	p, cfg := hasty(t, true), quick()
	cfg.RcvHWM, cfg.BufferMessages, cfg.ReplayTimeout = 16, 64, time.Second
	in, s := start(t, cfg), gated{newSink(), make(chan struct{})}
	must(t, in.Register(zmq.Source{Worker: w1, Name: "w1", Endpoint: p.endpoint, Replay: p.replay, Sink: s}))
	p.joined()
	testkit.Until(t, "the first replay has ended", func() bool { return status(t, in).State == stream.Live })
	const messages, blocks = 600, 500 // more than the kernel holds between the two
	hashes := make([]uint32, blocks)
	for seq := range uint64(messages) {
		for i := range hashes {
			hashes[i] = uint32(seq)*blocks + uint32(i)
		}
		p.send(seq, payload(store(-1, hashes...)))
	}
	close(s.gate)
	testkit.Until(t, "all is there", func() bool {
		p.frames(nil, wire.SequenceFrame(messages-1), payload(store(-1, hashes...))) // the last again: it may be lost
		st := status(t, in)
		return st.LastSeq == messages-1 && st.Trusted
	})
	if n, st := s.Blocks(w1)[kvcache.Device], status(t, in); st.Gaps == 0 || st.Lost != 0 || n != messages*blocks {
		t.Errorf("%d blocks, want %d: %+v", n, messages*blocks, st)
	}
}

// A publisher drops what its reader does not take. How many live messages may wait has nothing to do with it.
func TestAWholeReplayIsTakenWhileNobodyReads(t *testing.T) {
	const messages, blocks = 2000, 1000 // some 20 MB: more than the kernel holds between the two
	p, cfg := newPublisher(t, false), quick()
	p.secure = func(s *zmq4.Socket) { // sends when there is room
		must(t, errors.Join(s.SetSndhwm(10), s.SetRouterMandatory(1), s.SetSndtimeo(patience)))
	}
	p.serveReplays()
	hashes := make([]uint32, blocks)
	for seq := range uint64(messages) {
		for i := range hashes {
			hashes[i] = uint32(seq)*blocks + uint32(i)
		}
		p.keep(seq, payload(store(-1, hashes...)))
	}
	cfg.RcvHWM, cfg.ReplayTimeout = 16, patience
	in, s := start(t, cfg), gated{newSink(), make(chan struct{})}
	must(t, in.Register(zmq.Source{Worker: w1, Name: "w1", Endpoint: p.endpoint, Replay: p.replay, Sink: s}))
	testkit.Until(t, "the whole answer is sent", func() bool { return p.told.Load() == messages+1 })
	close(s.gate)
	testkit.Until(t, "all is there", func() bool { return status(t, in).LastSeq == messages-1 })
	if got := p.starts(); len(got) != 1 {
		t.Errorf("asked %d times, from %v on", len(got), got)
	}
}

// tardy is a sink that takes long for each message.
type tardy struct {
	*sink
	takes time.Duration
}

func (s tardy) Apply(w fleet.Worker, events []kvcache.Event) kvcache.Applied {
	<-time.After(s.takes)
	return s.sink.Apply(w, events)
}

// The time that a replay may take begins when it is asked for, not when what waited before it was received.
func TestASlowIndexDoesNotShortenAReplay(t *testing.T) {
	p, cfg, s := newPublisher(t, true), quick(), newSink()
	cfg.ReplayTimeout = 100 * time.Millisecond
	in := start(t, cfg)
	must(t, in.Register(zmq.Source{Worker: w1, Name: "w1", Endpoint: p.endpoint, Replay: p.replay, Sink: tardy{s, 60 * time.Millisecond}}))
	p.joined()
	testkit.Until(t, "the first replay has ended", func() bool { return status(t, in).State == stream.Live })
	for seq := range uint64(5) { // the last ones wait while the first is applied
		p.send(seq, payload(store(-1, uint32(seq)+1)))
	}
	p.keep(5, payload(store(-1, 6)))
	p.send(6, payload(store(-1, 7)))
	testkit.Until(t, "all is there", func() bool { st := status(t, in); return st.LastSeq == 6 && st.Trusted })
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.Contains(s.states, stream.Degraded.String()) {
		t.Errorf("the replay failed: %v", s.states)
	}
}
