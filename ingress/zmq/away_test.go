package zmq_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/routerd/routerd/ingress/zmq"
	"github.com/routerd/routerd/internal/testkit"
)

func TestAPublisherThatIsAwayIsToldOnceEachTime(t *testing.T) {
	cfg, log := quick(), new(testkit.Log)
	cfg.UnconnectedAfter = 50 * time.Millisecond
	in, err := zmq.New(cfg, slog.New(slog.NewTextHandler(log, nil)), prometheus.NewRegistry())
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- in.Run(ctx) }()
	defer func() {
		cancel()
		must(t, <-ended)
	}()
	p := newPublisher(t, false)
	p.kill()
	must(t, in.Register(zmq.Source{Worker: w1, Name: "w1", Endpoint: p.endpoint, Sink: newSink()}))
	const away, back = "no connection to the publisher of KV events", "connected to the publisher of KV events"
	for round := 1; round <= 2; round++ {
		testkit.Until(t, "it is told", func() bool { return status(t, in).Unconnected })
		p.bind(p.endpoint)
		p.joined()
		testkit.Until(t, "it is back", func() bool { return !status(t, in).Unconnected })
		if log.Count(away) != round || log.Count(back) != round || log.Count(p.endpoint) < 2*round {
			t.Errorf("round %d\n%s", round, log)
		}
		p.kill()
	}
}
