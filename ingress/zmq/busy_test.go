package zmq_test

import (
	"io"
	"runtime/debug"
	"runtime/pprof"
	"testing"
	"time"

	zmq4 "github.com/pebbe/zmq4"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/ingress/stream"
)

// Garbage collections and profiling signals interrupt the system calls of ZeroMQ all the time.
func TestZ1_AFastStreamUnderGarbageCollectionAndSignalsLosesNothing(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(5))
	if err := pprof.StartCPUProfile(io.Discard); err != nil {
		t.Fatal(err)
	}
	defer pprof.StopCPUProfile()
	const rate = 5000 // messages a second
	p, s, in := newPublisher(t, true), newSink(), start(t, scaled())
	listen(t, in, p, s)
	began, sent, keep := time.Now(), uint64(0), make([][]byte, 64)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for time.Since(began) < flows {
		<-tick.C
		for due := uint64(time.Since(began).Seconds() * rate); sent < due; sent++ {
			h := uint32(sent % 10_000)
			keep[sent%64] = payload(store(-1, h), drop(h)) // garbage, and a bounded index
			p.frames(nil, []byte{0, 0, 0, 0, byte(sent >> 24), byte(sent >> 16), byte(sent >> 8), byte(sent)}, keep[sent%64])
		}
	}
	st := untilSeq(t, in, sent-1)
	if sent < rate*uint64(flows/time.Second)*9/10 {
		t.Errorf("%d messages sent in %s", sent, flows)
	}
	if d := cmp.Diff(map[string]uint64{}, st.Dropped); d != "" {
		t.Error(d)
	}
	if st.Gaps != 0 || st.Restarts != 0 || st.Fault != "" || !st.Trusted || st.State != stream.Live || uint64(s.count()) != sent {
		t.Errorf("%d of %d applied, %+v", s.count(), sent, st)
	}
	if m, err := p.pub.RecvBytes(zmq4.DONTWAIT); err == nil || len(p.starts()) != 1 {
		t.Errorf("the subscriber began anew: %x, asked from %v", m, p.starts())
	}
}
