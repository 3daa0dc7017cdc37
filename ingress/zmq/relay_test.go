package zmq_test

import (
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	zmq4 "github.com/pebbe/zmq4"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/ingress/stream"
	"github.com/routerd/routerd/ingress/zmq"
)

// relay stands between a publisher and us. While it swallows packets, nothing gets through and nobody is told; TCP goes
// on where it was when it lets them through again.
type relay struct {
	endpoint string
	up       string
	ln       net.Listener
	all      sync.WaitGroup

	mu    sync.Mutex // guards all below
	open  chan struct{}
	conns []net.Conn
}

func newRelay(t *testing.T, endpoint string) *relay {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	r := &relay{endpoint: "tcp://" + ln.Addr().String(), up: strings.TrimPrefix(endpoint, "tcp://"), ln: ln, open: make(chan struct{})}
	close(r.open)
	r.all.Go(r.serve)
	t.Cleanup(func() {
		_ = ln.Close()
		r.mu.Lock()
		for _, c := range r.conns {
			_ = c.Close()
		}
		r.mu.Unlock()
		r.all.Wait()
	})
	return r
}

// swallow has the packets swallowed until the function that it returns is called.
func (r *relay) swallow() (resume func()) {
	gate := make(chan struct{})
	r.mu.Lock()
	r.open = gate
	r.mu.Unlock()
	return func() { close(gate) }
}

func (r *relay) serve() {
	for {
		down, err := r.ln.Accept()
		if err != nil {
			return
		}
		up, err := net.Dial("tcp", r.up)
		if err != nil {
			_ = down.Close()
			continue
		}
		r.mu.Lock()
		r.conns = append(r.conns, down, up)
		r.mu.Unlock()
		r.all.Go(func() { r.pass(up, down) })
		r.all.Go(func() { r.pass(down, up) })
	}
}

func (r *relay) pass(to, from net.Conn) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		r.mu.Lock()
		open := r.open
		r.mu.Unlock()
		<-open
		if _, broken := to.Write(buffer[:n]); err != nil || broken != nil {
			_, _ = to.Close(), from.Close()
			return
		}
	}
}

func TestZ2_ARelayThatSwallowsAllIsNoticedAndWhatWasMissedIsAGap(t *testing.T) {
	cfg := scaled()
	cfg.BufferMessages = 1 << 16
	p, other, in := newPublisher(t, true), newPublisher(t, false), start(t, cfg)
	r, s := newRelay(t, p.endpoint), newSink()
	asks, well := fleet.Worker{ID: 2}, fleet.Worker{ID: 3}
	must(t, in.Register(zmq.Source{Worker: w1, Name: "w1", Endpoint: r.endpoint, Sink: s}))
	must(t, in.Register(zmq.Source{Worker: asks, Name: "asks", Endpoint: r.endpoint, Replay: p.replay, Sink: s}))
	must(t, in.Register(zmq.Source{Worker: well, Name: "well", Endpoint: other.endpoint, Sink: s}))
	for range 2 {
		p.joined()
	}
	other.joined()
	seq := uint64(0)
	// during has the publishers go on until a condition holds, and tells how long that took.
	during := func(cond func() bool) time.Duration {
		began := time.Now()
		for tick := time.NewTicker(20 * time.Millisecond); !cond() && time.Since(began) < swallows+2*patience; <-tick.C {
			for _, p := range []*publisher{p, other} {
				p.send(seq, payload(store(-1, uint32(seq))))
				_, _ = p.pub.RecvBytes(zmq4.DONTWAIT) // who comes and goes
			}
			seq++
		}
		return time.Since(began)
	}
	state := func(w fleet.Worker) zmq.Status {
		st, _ := in.Status(w)
		return st
	}
	during(func() bool { return seq > 20 && state(w1).LastSeq > 10 && state(asks).LastSeq > 10 })
	resume := r.swallow()
	began := time.Now()
	gone := func(w fleet.Worker) bool { return state(w).State == stream.Disconnected }
	if took := during(func() bool { return gone(w1) && gone(asks) }); took > 4*cfg.Heartbeat {
		t.Errorf("noticed after %s, want %s", took, 4*cfg.Heartbeat)
	}
	during(func() bool { return time.Since(began) > swallows })
	resume()
	back := func(w fleet.Worker) bool { return !gone(w) && state(w).LastSeq+50 > seq }
	if took := during(func() bool { return back(w1) && back(asks) }); took > 2*cfg.ReconnectIvlMax {
		t.Errorf("back after %s, want %s", took, 2*cfg.ReconnectIvlMax)
	}
	during(func() bool { return state(asks).Trusted && state(asks).State == stream.Live })
	if st := state(w1); st.Gaps == 0 || st.Lost != st.Gaps || st.Trusted || st.Restarts != 0 {
		t.Errorf("without replay: %+v", st)
	}
	if st := state(asks); !st.Trusted || st.Lost != 0 || st.Restarts != 0 || s.Blocks(asks)[0] != int(st.LastSeq)+1 {
		t.Errorf("with replay: %d blocks, %+v", s.Blocks(asks)[0], st)
	}
	if st := state(well); st.Gaps != 0 || st.State != stream.Live || !st.Trusted {
		t.Errorf("the other publisher's: %+v", st)
	}
}
