package zmq

import (
	"log/slog"
	"testing"

	zmq4 "github.com/pebbe/zmq4"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/routerd/routerd/fleet"
)

func TestWithoutLoadSocketsNothingIsLookedAt(t *testing.T) {
	l, err := NewLoadListener(DefaultConfig(), func(fleet.Worker, Load) {}, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	l.running = true // as by Run, whose part the test takes
	o := &loadOwner{LoadListener: l, open: map[*loadSource]struct{}{}, ready: map[*zmq4.Socket]*loadSource{}}
	follow := func(want bool) {
		t.Helper()
		if err := o.follow(); err != nil {
			t.Fatal(err)
		}
		if looks := o.looks != nil; looks != want {
			t.Errorf("sockets are looked at: %v, want %v", looks, want)
		}
	}
	follow(false)
	for range 2 {
		w := []fleet.Worker{{ID: 1}, {ID: 2}}
		for _, w := range w {
			if err := l.Listen(w, "w", "tcp://127.0.0.1:1"); err != nil {
				t.Fatal(err)
			}
			<-l.wake
			follow(true)
		}
		for i, w := range w {
			ended := make(chan struct{})
			go func() { l.Unlisten(w); close(ended) }()
			<-l.wake
			follow(i == 0)
			<-ended
		}
	}
	if err := o.close(); err != nil {
		t.Error(err)
	}
}
