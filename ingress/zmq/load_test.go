package zmq_test

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/ingress/wire"
	"github.com/routerd/routerd/ingress/zmq"
	"github.com/routerd/routerd/internal/testkit"
)

// loadOfRank1 is a payload as msgspec 0.20 writes SGLang's LoadStat (array_like, tagged).
const loadOfRank1 = "96a84c6f6164537461740307ce00020d00ce0004e20001"

func unhex(t testing.TB, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(text)
	must(t, err)
	return b
}

// stat packs a load message of running requests.
func stat(running byte) []byte {
	return append(append([]byte{0x96, 0xa8}, "LoadStat"...), running, 1, 2, 3, 0xc0)
}

func TestLoadMessagesInOtherFramesAreRefused(t *testing.T) {
	for name, frames := range map[string][][]byte{
		"two frames":    {[]byte("load"), stat(1)},
		"four frames":   {[]byte("load"), wire.SequenceFrame(1), stat(1), nil},
		"short number":  {[]byte("load"), {1}, stat(1)},
		"longer topic":  {[]byte("loads"), wire.SequenceFrame(1), stat(1)},
		"end of replay": {[]byte("load"), wire.SequenceFrame(wire.EndOfReplay), stat(1)},
	} {
		if got, err := zmq.ParseLoad(frames); !errors.Is(err, wire.ErrCorrupt) {
			t.Errorf("%s: got %+v, %v", name, got, err)
		}
	}
}

// heard keeps what a load listener handed on.
type heard struct {
	mu   sync.Mutex // guards all below
	last map[fleet.Worker]zmq.Load
	n    int
}

func (h *heard) take(w fleet.Worker, l zmq.Load) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.last == nil {
		h.last = map[fleet.Worker]zmq.Load{}
	}
	h.last[w] = l
	h.n++
}

func (h *heard) running(w fleet.Worker) int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	l, ok := h.last[w]
	if !ok {
		return -1
	}
	return l.Running
}

func (h *heard) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.n
}

// loads runs a load listener until the test ends.
func loads(t *testing.T, h *heard, change ...func(*zmq.LoadListener)) (*zmq.LoadListener, *prometheus.Registry) {
	t.Helper()
	reg := prometheus.NewRegistry()
	l, err := zmq.NewLoadListener(zmq.DefaultConfig(), h.take, slog.New(slog.DiscardHandler), reg)
	must(t, err)
	for _, f := range change {
		f(l)
	}
	keepRunning(t, l.Run)
	return l, reg
}

func counted(t *testing.T, reg *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := reg.Gather()
	must(t, err)
	for _, f := range families {
		if f.GetName() == name {
			m := f.GetMetric()[0]
			return m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}

func TestTheNewestLoadOfARankIsHandedOn(t *testing.T) {
	p, h := newPublisher(t, false), &heard{}
	l, reg := loads(t, h)
	must(t, l.Listen(w1, "w1", p.endpoint))
	p.joined()
	began := time.Now()
	p.frames([]byte("load"), wire.SequenceFrame(0), unhex(t, loadOfRank1))
	testkit.Until(t, "the load is heard", func() bool { return h.running(w1) == 3 })
	got := h.last[w1]
	if diff := cmp.Diff(zmq.Load{Load: wire.Load{Running: 3, Waiting: 7, Tokens: 134400, MaxTokens: 320000}}, got, cmpopts.IgnoreFields(zmq.Load{}, "At")); diff != "" {
		t.Error(diff)
	}
	if got.At.Before(began) {
		t.Errorf("at %v, before it was sent", got.At)
	}
	for i := range 100 {
		p.frames([]byte("load"), wire.SequenceFrame(uint64(1+i)), stat(byte(i)))
		if i == 98 {
			testkit.Until(t, "messages were read", func() bool { return counted(t, reg, "routerd_ingress_load_messages_total") > 1 })
		}
	}
	testkit.Until(t, "the last one is heard", func() bool { return h.running(w1) == 99 })
	if n := h.count(); n > 60 {
		t.Errorf("%d handed on of 100 that came at once", n)
	}
}

func TestHostileLoadFramesAreCountedAndTheNextIsHeard(t *testing.T) {
	p, h := newPublisher(t, false), &heard{}
	l, reg := loads(t, h)
	must(t, l.Listen(w1, "w1", p.endpoint))
	p.joined()
	bad := [][][]byte{
		{[]byte("load")},
		{[]byte("load"), stat(1)},
		{[]byte("load"), wire.SequenceFrame(0), nil},
		{[]byte("load"), wire.SequenceFrame(0), make([]byte, 4000)},
		{[]byte("loads"), wire.SequenceFrame(0), stat(1)},
		{[]byte("load"), []byte("123456789"), stat(1)},
	}
	for i, frames := range bad {
		p.frames(frames...)
		testkit.Until(t, "it is dropped", func() bool { return counted(t, reg, "routerd_ingress_load_dropped_total") == float64(i+1) })
	}
	p.frames([]byte("load"), wire.SequenceFrame(1), stat(42))
	testkit.Until(t, "the good one is heard", func() bool { return h.running(w1) == 42 })
}

func TestASilentLoadSocketIsOpenedAnew(t *testing.T) {
	p, h := newPublisher(t, false), &heard{}
	l, _ := loads(t, h, func(l *zmq.LoadListener) { l.SetSilence(200 * time.Millisecond) })
	must(t, l.Listen(w1, "w1", p.endpoint))
	p.joined()
	p.frames([]byte("load"), wire.SequenceFrame(2), make([]byte, 1<<20)) // for which ZeroMQ gives up the connection
	p.joined()
	p.frames([]byte("load"), wire.SequenceFrame(3), stat(43))
	testkit.Until(t, "the one after it is heard", func() bool { return h.running(w1) == 43 })
}

func TestK14_AfterUnlistenNothingIsHandedOn(t *testing.T) {
	p, h := newPublisher(t, false), &heard{}
	l, reg := loads(t, h)
	w2 := fleet.Worker{ID: 2}
	must(t, l.Listen(w2, "w2", p.endpoint))
	p.joined()
	for i := range byte(20) {
		must(t, l.Listen(w1, "w1", p.endpoint))
		p.joined()
		p.frames([]byte("load"), wire.SequenceFrame(0), stat(100))
		l.Unlisten(w1)
		p.frames([]byte("load"), wire.SequenceFrame(1), stat(i))
		testkit.Until(t, "the other has heard", func() bool { return h.running(w2) == int64(i) })
		if got := h.running(w1); got != -1 && got != 100 {
			t.Fatalf("message %d was handed on after Unlisten", got)
		}
	}
	l.Unlisten(fleet.Worker{ID: 77})
	l.Unlisten(w2)
	testkit.Until(t, "no socket is left", func() bool { return counted(t, reg, "routerd_ingress_load_sockets") == 0 })
}

// The path is longer than the address of a socket may be.
func TestOnlyLoadSocketsThatAreOpenAreCounted(t *testing.T) {
	p, h := newPublisher(t, false), &heard{}
	l, reg := loads(t, h)
	must(t, l.Listen(w1, "w1", "ipc:///"+strings.Repeat("x", 200)))
	must(t, l.Listen(fleet.Worker{ID: 2}, "w2", p.endpoint))
	p.joined()
	testkit.Until(t, "one socket is counted", func() bool { return counted(t, reg, "routerd_ingress_load_sockets") == 1 })
	l.Unlisten(fleet.Worker{ID: 2})
	l.Unlisten(w1)
	testkit.Until(t, "no socket is left", func() bool { return counted(t, reg, "routerd_ingress_load_sockets") == 0 })
}

func TestManyLoadSocketsCostNoThreads(t *testing.T) {
	p, h := newPublisher(t, false), &heard{}
	l, _ := loads(t, h)
	must(t, l.Listen(w1, "w1", p.endpoint))
	p.joined()
	wasThreads, wasRoutines := threads(t), runtime.NumGoroutine()
	for i := range fleet.WorkerID(200) {
		must(t, l.Listen(fleet.Worker{ID: 100 + i}, fmt.Sprint(i), p.endpoint))
	}
	for range 200 {
		p.joined()
	}
	p.frames([]byte("load"), wire.SequenceFrame(0), stat(9))
	testkit.Until(t, "all have heard", func() bool {
		for i := range fleet.WorkerID(200) {
			if h.running(fleet.Worker{ID: 100 + i}) != 9 {
				return false
			}
		}
		return true
	})
	if now := threads(t); now > wasThreads+20 {
		t.Errorf("%d threads before, %d with 200 sockets", wasThreads, now)
	}
	if now := runtime.NumGoroutine(); now > wasRoutines+5 {
		t.Errorf("%d goroutines before, %d with 200 sockets", wasRoutines, now)
	}
	for i := range fleet.WorkerID(200) {
		l.Unlisten(fleet.Worker{ID: 100 + i})
	}
}

func TestLoadRegistrationsAreChecked(t *testing.T) {
	h := &heard{}
	l, err := zmq.NewLoadListener(zmq.DefaultConfig(), h.take, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	must(t, err)
	var field *fleet.FieldError
	if err := l.Listen(w1, "w1", "tcp://*:5561"); !errors.As(err, &field) || field.Field != "load_reports" {
		t.Errorf("got %v", err)
	}
	must(t, l.Listen(w1, "w1", "tcp://127.0.0.1:1"))
	if err := l.Listen(w1, "w1", "tcp://127.0.0.1:1"); !errors.Is(err, zmq.ErrRegistered) {
		t.Errorf("got %v", err)
	}
	l.Unlisten(w1) // before Run: nothing to wait for
	must(t, l.Listen(w1, "w1", "tcp://127.0.0.1:1"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	must(t, l.Run(ctx))
	if err := l.Run(t.Context()); err == nil {
		t.Error("it ran twice")
	}
	if err := l.Listen(fleet.Worker{ID: 2}, "w2", "tcp://127.0.0.1:1"); !errors.Is(err, zmq.ErrEnded) {
		t.Errorf("got %v", err)
	}
	l.Unlisten(w1) // after Run: nothing to wait for
}
