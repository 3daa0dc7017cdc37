package zmq_test

import (
	"testing"
	"time"

	"github.com/routerd/routerd/ingress/stream"
	"github.com/routerd/routerd/ingress/wire"
	"github.com/routerd/routerd/internal/testkit"
)

func TestK4_AReplayThatContradictsTheLiveMessageIsAskedForAFewTimesOnly(t *testing.T) {
	p, s, cfg := newPublisher(t, true), newSink(), quick()
	in := start(t, cfg)
	p.answers(func(uint64) ([][2][]byte, bool) {
		return [][2][]byte{{wire.SequenceFrame(0), payload(store(-1, 10))}}, true
	})
	listen(t, in, p, s)
	p.send(0, payload(store(-1, 11)))
	testkit.Until(t, "the stream goes on degraded", func() bool {
		st := status(t, in)
		return st.Restarts == uint64(cfg.ReplayTries) && st.State == stream.Degraded && st.Reason == stream.LossDoubt && !st.Trusted
	})
	<-time.After(2 * cfg.ReplayRetryMax)
	if got, want := len(p.starts()), 1+cfg.ReplayTries; got != want {
		t.Errorf("asked %d times, want %d", got, want)
	}
	if got := overlap(t, s, w1, 10); got != 1 {
		t.Errorf("overlap %d, want 1: what the replay brought stands", got)
	}
	p.send(1, payload(store(10, 12)))
	untilSeq(t, in, 1)
	if got := overlap(t, s, w1, 10, 12); got != 2 {
		t.Errorf("overlap %d, want 2", got)
	}
}
