package zmq_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/ingress/zmq"
	"github.com/routerd/routerd/kvcache"
)

type bell struct{ c chan struct{} }

func (b bell) Apply(fleet.Worker, []kvcache.Event) kvcache.Applied {
	b.c <- struct{}{}
	return kvcache.Applied{}
}
func (bell) Clear(fleet.Worker)             {}
func (bell) State(fleet.Worker, zmq.Status) {}

func BenchmarkAMessageBesideManyListeners(b *testing.B) {
	for _, n := range []int{1, 250, 500} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			cfg := zmq.DefaultConfig()
			cfg.Owners = 1
			in, err := zmq.New(cfg, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
			must(b, err)
			ctx, cancel := context.WithCancel(b.Context())
			ended := make(chan error, 1)
			go func() { ended <- in.Run(ctx) }()
			p, silent := newPublisher(b, false), newPublisher(b, false)
			ring := bell{make(chan struct{})}
			for i := range n {
				src := zmq.Source{Worker: fleet.Worker{ID: fleet.WorkerID(i + 1)}, Name: "w", Endpoint: p.endpoint, Sink: ring}
				if i > 0 {
					src.Endpoint = silent.endpoint
				}
				must(b, in.Register(src))
			}
			p.joined()
			for range n - 1 {
				silent.joined()
			}
			seq := uint64(0)
			for b.Loop() {
				p.send(seq, payload(store(-1, 1)))
				seq++
				<-ring.c
			}
			b.StopTimer()
			cancel()
			must(b, <-ended)
		})
	}
}
