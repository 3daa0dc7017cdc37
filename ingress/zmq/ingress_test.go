package zmq_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/ingress/stream"
	"github.com/routerd/routerd/ingress/wire"
	"github.com/routerd/routerd/ingress/zmq"
	"github.com/routerd/routerd/internal/testkit"
)

var w1 = fleet.Worker{ID: 1}

// quick is a configuration with short delays.
func quick() zmq.Config {
	c := zmq.DefaultConfig()
	c.Owners = 2
	c.ReconnectIvl, c.ReconnectIvlMax = 10*time.Millisecond, 50*time.Millisecond
	c.ReplayTimeout = 150 * time.Millisecond
	c.ReplayRetryMin, c.ReplayRetryMax = 100*time.Millisecond, 200*time.Millisecond
	c.ReplayTries = 3
	return c
}

// start runs an ingress until the test ends.
func start(t *testing.T, cfg zmq.Config) *zmq.DirectIngress {
	t.Helper()
	in, err := zmq.New(cfg, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	must(t, err)
	keepRunning(t, in.Run)
	return in
}

// keepRunning runs something until the test ends.
func keepRunning(t *testing.T, run func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-ended:
			must(t, err)
		case <-time.After(patience):
			t.Error("Run does not end")
		}
	})
}

// listen registers worker w1 at a publisher and waits until it has joined.
func listen(t *testing.T, in *zmq.DirectIngress, p *publisher, s *sink) {
	t.Helper()
	must(t, in.Register(zmq.Source{Worker: w1, Name: "w1", Endpoint: p.endpoint, Replay: p.replay, Sink: s}))
	p.joined()
	if p.replay != "" {
		testkit.Until(t, "the first replay has ended", func() bool {
			st := status(t, in)
			return st.State != stream.Connecting && st.State != stream.Syncing
		})
	}
}

func status(t *testing.T, in *zmq.DirectIngress) zmq.Status {
	t.Helper()
	st, ok := in.Status(w1)
	if !ok {
		t.Fatal("not registered")
	}
	return st
}

func untilSeq(t *testing.T, in *zmq.DirectIngress, seq uint64) zmq.Status {
	t.Helper()
	testkit.Until(t, fmt.Sprintf("message %d is applied", seq), func() bool {
		st := status(t, in)
		return st.Seen && st.LastSeq == seq && st.State != stream.Syncing && st.State != stream.Gap && st.State != stream.Resync
	})
	return status(t, in)
}

func TestK1_AGapWithoutReplayIsCountedAndTheStreamGoesOn(t *testing.T) {
	p, s, in := newPublisher(t, false), newSink(), start(t, quick())
	listen(t, in, p, s)
	p.send(0, payload(store(-1, 10)))
	p.send(1, payload(store(10, 11)))
	p.send(2, payload(store(11, 12)))
	p.send(5, payload(store(12, 13)))
	p.send(6, payload(store(13, 14)))
	st := untilSeq(t, in, 6)
	if st.Gaps != 2 || st.Lost != 2 || st.Trusted || st.State != stream.Degraded || st.Reason != stream.LossGap {
		t.Errorf("status %+v", st)
	}
	if got := overlap(t, s, w1, 10, 11, 12, 13, 14); got != 5 {
		t.Errorf("overlap %d, want 5", got)
	}
}

func TestK2_AFallToZeroDropsTheWorkersBlocksFirst(t *testing.T) {
	p, s, in := newPublisher(t, false), newSink(), start(t, quick())
	listen(t, in, p, s)
	other := fleet.Worker{ID: 2}
	s.Apply(other, nil)
	parent, prompt := -1, []uint32{}
	for seq := range uint64(51) {
		var hashes []uint32
		for i := range uint32(4) {
			hashes = append(hashes, uint32(100+4*seq)+i)
		}
		p.send(seq, payload(store(parent, hashes...)))
		parent = int(hashes[3])
		prompt = append(prompt, hashes...)
	}
	untilSeq(t, in, 50)
	if got := overlap(t, s, w1, prompt...); got != 204 {
		t.Fatalf("overlap %d, want 204", got)
	}
	p.send(0, payload(store(-1, 7)))
	st := untilSeq(t, in, 0)
	if st.Restarts != 1 || !st.Trusted {
		t.Errorf("status %+v", st)
	}
	if old, now := overlap(t, s, w1, prompt...), overlap(t, s, w1, 7); old != 0 || now != 1 {
		t.Errorf("overlaps %d, %d; want 0, 1", old, now)
	}
}

func TestK3_AGapIsReplayedAndEachMessageAppliedOnce(t *testing.T) {
	p, s, in := newPublisher(t, true), newSink(), start(t, quick())
	listen(t, in, p, s)
	blocks := []uint32{20, 21, 22, 23, 24, 25, 26, 27, 28, 29}
	parent := -1
	for seq, h := range blocks {
		if seq < 3 || seq >= 8 {
			p.send(uint64(seq), payload(store(parent, h)))
		} else {
			p.keep(uint64(seq), payload(store(parent, h)))
		}
		parent = int(h)
		if seq == 2 {
			untilSeq(t, in, 2)
		}
	}
	st := untilSeq(t, in, 9)
	if !st.Trusted || st.State != stream.Live || st.Gaps != 5 || st.Lost != 0 {
		t.Errorf("status %+v", st)
	}
	if s.count() != 10 {
		t.Errorf("%d messages applied, want 10", s.count())
	}
	if d := cmp.Diff([]uint64{0, 3}, p.starts()); d != "" {
		t.Error(d)
	}
	if got := overlap(t, s, w1, blocks...); got != 10 {
		t.Errorf("overlap %d, want 10", got)
	}
	p.send(10, payload(drop(blocks...)))
	untilSeq(t, in, 10)
	if n := s.Blocks(w1)[0]; n != 0 {
		t.Errorf("%d blocks are left", n)
	}
}

func TestK4_BothFormsOfReplayAnswersAreApplied(t *testing.T) {
	for _, topic := range []bool{false, true} {
		t.Run(fmt.Sprintf("topic frame %v", topic), func(t *testing.T) {
			p, s, in := newPublisher(t, true), newSink(), start(t, quick())
			p.topicFrame = topic
			p.keep(0, payload(store(-1, 10)))
			p.keep(1, payload(store(10, 11)))
			listen(t, in, p, s)
			if st := untilSeq(t, in, 1); !st.Trusted || st.State != stream.Live {
				t.Errorf("status %+v", st)
			}
			if got := overlap(t, s, w1, 10, 11); got != 2 {
				t.Errorf("overlap %d, want 2", got)
			}
		})
	}
}

func TestK4_BrokenReplaysAreReportedAndTheStreamGoesOn(t *testing.T) {
	cases := map[string]struct {
		answer func(p *publisher) ([][2][]byte, bool)
		reason string
	}{
		"begins late":    {func(p *publisher) ([][2][]byte, bool) { return p.from(6), true }, "started_after_requested"},
		"no end mark":    {func(p *publisher) ([][2][]byte, bool) { return p.from(3)[:1], false }, "no_end_mark"},
		"never answered": {func(*publisher) ([][2][]byte, bool) { return nil, false }, "no_answer"},
		"with a hole": {func(p *publisher) ([][2][]byte, bool) {
			m := p.from(3)
			return append(slices.Clone(m[:1]), m[2:]...), true
		}, "non_contiguous"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			p, s, in := newPublisher(t, true), newSink(), start(t, quick())
			listen(t, in, p, s)
			p.answers(func(uint64) ([][2][]byte, bool) { return c.answer(p) })
			for seq := range uint64(10) {
				if body := payload(store(-1, uint32(50+seq))); seq < 3 || seq > 7 {
					p.send(seq, body)
				} else {
					p.keep(seq, body)
				}
				if seq == 2 {
					untilSeq(t, in, 2)
				}
			}
			testkit.Until(t, "the stream goes on degraded", func() bool {
				st := status(t, in)
				return st.LastSeq == 9 && st.State == stream.Degraded && st.Reason == c.reason && !st.Trusted
			})
			if got := overlap(t, s, w1, 59); got != 1 {
				t.Errorf("the live message was not applied: overlap %d", got)
			}
			p.answers(nil)
			if name == "begins late" {
				return // what is gone at the publisher cannot come back, whatever this one says now
			}
			testkit.Until(t, "the missing was repaired", func() bool { return status(t, in).Trusted })
			for h := uint32(50); h < 60; h++ {
				if overlap(t, s, w1, h) != 1 {
					t.Errorf("block %d is missing", h)
				}
			}
		})
	}
}

func TestK13_CorruptMessagesAreSkippedAndTheStreamGoesOn(t *testing.T) {
	p, s, in := newPublisher(t, false), newSink(), start(t, quick())
	listen(t, in, p, s)
	p.send(0, payload(store(-1, 10)))
	p.frames(wire.SequenceFrame(1), payload(store(-1, 66)))
	p.frames(nil, wire.SequenceFrame(1)[:7], payload(store(-1, 66)))
	p.frames(nil, wire.SequenceFrame(1), payload(store(-1, 66))[:9])
	p.frames(nil, wire.SequenceFrame(2), []byte("\xa5hello"))
	p.frames(nil, wire.SequenceFrame(3), nil)
	p.send(4, payload(store(10, 11)))
	st := untilSeq(t, in, 4)
	if d := cmp.Diff(map[string]uint64{"corrupt_message": 5}, st.Dropped); d != "" {
		t.Error(d)
	}
	if st.Gaps != 0 || st.Trusted || overlap(t, s, w1, 10, 11) != 2 {
		t.Errorf("status %+v, overlap %d", st, overlap(t, s, w1, 10, 11))
	}
	p.send(5, payload(cleared()))
	if st := untilSeq(t, in, 5); !st.Trusted || st.State != stream.Live {
		t.Errorf("after a clear: %+v", st)
	}
}

func TestK14_AfterUnregisterNothingIsApplied(t *testing.T) {
	p, in := newPublisher(t, false), start(t, quick())
	seq := uint64(0)
	for round := range 25 {
		s := newSink()
		must(t, in.Register(zmq.Source{Worker: w1, Name: "w1", Endpoint: p.endpoint, Sink: s}))
		p.joined()
		for range 20 + 7*round {
			p.send(seq, payload(store(-1, uint32(seq))))
			seq++
		}
		if round%2 == 0 {
			testkit.Until(t, "something is applied", func() bool { return s.count() > 0 })
		}
		in.Unregister(w1)
		s.mu.Lock()
		s.sealed = true
		s.mu.Unlock()
		s.Remove(w1)
		p.send(seq, payload(store(-1, uint32(seq))))
		seq++
		s.mu.Lock()
		if s.late != 0 {
			t.Fatalf("round %d: %d calls after Unregister", round, s.late)
		}
		s.mu.Unlock()
		if n := s.Blocks(w1)[0]; n != 0 {
			t.Fatalf("round %d: %d blocks are left", round, n)
		}
	}
}

func TestK15_TheBatchsRankCountsWhenItIsInRange(t *testing.T) {
	p, s, in := newPublisher(t, false), newSink(), start(t, quick())
	must(t, in.Register(zmq.Source{Worker: w1, Owns: func(rank uint32) bool { return rank < 2 }, Endpoint: p.endpoint, Sink: s}))
	p.joined()
	ranked := func(rank byte, h uint32) []byte {
		b := payload(store(-1, h))
		b[len(b)-1] = rank
		return b
	}
	p.send(0, ranked(1, 10))
	p.send(1, ranked(9, 11))
	p.send(2, ranked(0, 12))
	st := untilSeq(t, in, 2)
	if d := cmp.Diff(map[string]uint64{"bad_rank": 1}, st.Dropped); d != "" {
		t.Error(d)
	}
	rank1 := fleet.Worker{ID: 1, Rank: 1}
	if overlap(t, s, rank1, 10) != 1 || overlap(t, s, w1, 12) != 1 || s.Blocks(w1)[0] != 1 || s.Blocks(rank1)[0] != 1 {
		t.Errorf("blocks %v, %v", s.Blocks(w1), s.Blocks(rank1))
	}
	p.send(0, ranked(0, 13))
	untilSeq(t, in, 0)
	if s.Blocks(rank1)[0] != 0 {
		t.Error("a restart left what the stream stored for another rank")
	}
	p.send(1, ranked(1, 14))
	untilSeq(t, in, 1)
	if others := in.Unregister(w1); !slices.Equal(others, []fleet.Worker{rank1}) {
		t.Errorf("the stream stored for %v too, want rank 1", others)
	}
}

func TestZ3_APublisherThatReturnsFromZeroFeedsAnEmptyIndex(t *testing.T) {
	for _, withReplay := range []bool{false, true} {
		t.Run(fmt.Sprintf("replay %v", withReplay), func(t *testing.T) {
			p, s, in := newPublisher(t, withReplay), newSink(), start(t, scaled())
			listen(t, in, p, s)
			same := payload(store(-1, 10))
			p.send(0, same)
			p.send(1, payload(store(10, 11)))
			untilSeq(t, in, 1)
			p.kill()
			testkit.Until(t, "the connection is seen to be down", func() bool { return status(t, in).State == stream.Disconnected })
			<-time.After(returns)
			p.bind(p.endpoint)
			began := time.Now()
			p.joined()
			p.send(0, same)
			st := untilSeq(t, in, 0)
			if took := time.Since(began); took > 6*time.Second {
				t.Errorf("events flow after %s", took)
			}
			if st.Restarts != 1 || !st.Trusted || overlap(t, s, w1, 10, 11) != 1 {
				t.Errorf("status %+v, overlap %d, want 1", st, overlap(t, s, w1, 10, 11))
			}
		})
	}
}

func TestAReconnectToTheSameEngineKeepsItsBlocks(t *testing.T) {
	p, s, in := newPublisher(t, true), newSink(), start(t, quick())
	listen(t, in, p, s)
	p.send(0, payload(store(-1, 10)))
	p.send(1, payload(store(10, 11)))
	untilSeq(t, in, 1)
	must(t, p.pub.Close())
	testkit.Until(t, "the connection is seen to be down", func() bool { return status(t, in).State == stream.Disconnected })
	p.keep(2, payload(store(11, 12)))
	p.bind(p.endpoint)
	p.joined()
	st := untilSeq(t, in, 2)
	if st.Restarts != 0 || !st.Trusted || overlap(t, s, w1, 10, 11, 12) != 3 {
		t.Errorf("status %+v", st)
	}
	if d := cmp.Diff([]uint64{0, 1}, p.starts()); d != "" {
		t.Error(d)
	}
}

func TestRegistrationsAreChecked(t *testing.T) {
	in := start(t, quick())
	for _, endpoint := range []string{"", "x", "http://127.0.0.1:1", "tcp://127.0.0.1", "tcp://127.0.0.1:x", "tcp://127.0.0.1:0", "tcp://:5", "tcp://::1:5", "ipc://", "inproc://x", "tcp://" + strings.Repeat("a", 600) + ":1"} {
		err := in.Register(zmq.Source{Worker: w1, Endpoint: endpoint, Sink: newSink()})
		if err == nil || len(err.Error()) > 300 || !strings.Contains(err.Error(), "kv_events") {
			t.Errorf("endpoint %.20q: error %v", endpoint, err)
		}
	}
	if err := in.Register(zmq.Source{Worker: w1, Endpoint: "tcp://127.0.0.1:1", Replay: "y", Sink: newSink()}); err == nil || !strings.Contains(err.Error(), "replay") {
		t.Errorf("replay endpoint: error %v", err)
	}
	if err := in.Register(zmq.Source{Worker: w1, Endpoint: "tcp://127.0.0.1:1"}); err == nil {
		t.Error("no sink is accepted")
	}
	good := zmq.Source{Worker: w1, Endpoint: "tcp://[::1]:1", Sink: newSink()}
	must(t, in.Register(good))
	if err := in.Register(good); err == nil {
		t.Error("a second registration is accepted")
	}
	in.Unregister(w1)
	in.Unregister(w1)
	if _, ok := in.Status(w1); ok {
		t.Error("still registered")
	}
	must(t, in.Register(good))
}

func TestConfigRangesAreNamed(t *testing.T) {
	for field, change := range map[string]func(*zmq.Config){
		"owners": func(c *zmq.Config) { c.Owners = 0 }, "rcv_hwm": func(c *zmq.Config) { c.RcvHWM = -1 },
		"max_message": func(c *zmq.Config) { c.MaxMessage = 1 }, "unconnected_after": func(c *zmq.Config) { c.UnconnectedAfter = 0 },
		"replay_tries": func(c *zmq.Config) { c.ReplayTries = 0 }, "buffer_messages": func(c *zmq.Config) { c.BufferMessages = 1 },
		"buffer_bytes": func(c *zmq.Config) { c.BufferBytes = 1 }, "reconnect_ivl": func(c *zmq.Config) { c.ReconnectIvl = 0 },
		"reconnect_ivl_max": func(c *zmq.Config) { c.ReconnectIvlMax = time.Millisecond }, "heartbeat": func(c *zmq.Config) { c.Heartbeat = 0 },
		"replay_timeout": func(c *zmq.Config) { c.ReplayTimeout = 0 }, "replay_retry_min": func(c *zmq.Config) { c.ReplayRetryMin = 0 },
		"replay_retry_max": func(c *zmq.Config) { c.ReplayRetryMax = time.Millisecond },
	} {
		c := zmq.DefaultConfig()
		change(&c)
		if _, err := zmq.New(c, slog.Default(), prometheus.NewRegistry()); err == nil || !strings.Contains(err.Error(), " "+field+": ") {
			t.Errorf("%s: error %v", field, err)
		}
	}
}
