package bench_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/indexer/exact"
	"github.com/routerd/routerd/ingress/zmq"
)

const (
	ingestWorkers  = 4
	ingestMessages = 20_000
	ingestRounds   = 5
	ingestPace     = 5_000 // messages a second
)

// BenchmarkIngest is what a message of KV events costs from the socket to the
// exact index: CPU time of this process, in which nothing else is done, while
// publishers in another process send messages of 16 blocks. They send as fast as
// they go, or at the rate of a fleet at work, at which each message is waited for.
func BenchmarkIngest(b *testing.B) {
	forms := []string{"array", "map"}
	took := map[string]map[string]series{}
	for range ingestRounds {
		for _, form := range forms {
			if took[form] == nil {
				took[form] = map[string]series{}
			}
			for name, v := range ingestRound(b, form) {
				took[form][name] = append(took[form][name], v)
			}
		}
	}
	shown, kept := map[string]figures{}, map[string]figures{}
	for form, figs := range took {
		shown[form], kept[form] = figures{}, figures{"rounds": ingestRounds}
		for name, s := range figs {
			shown[form][name], kept[form][name] = s.median(), s.median()
			kept[form]["min-"+name], kept[form]["max-"+name] = slices.Min(s), slices.Max(s)
		}
	}
	show(b, forms, shown)
	keep(b, kept)
}

func ingestRound(b *testing.B, form string) figures {
	b.Helper()
	fast, bytes := ingest(b, form, ingestMessages, 0)
	paced, _ := ingest(b, form, ingestPace, ingestPace)
	return figures{
		"cpu-us/message": fast, "cpu-ns/block": 1000 * fast / ingestBlocks,
		"paced-cpu-us/message": paced, "bytes/message": bytes,
	}
}

// ingestSink is an index that a stream's state is of no interest to.
type ingestSink struct{ *exact.Index }

// State implements zmq.Sink.
func (ingestSink) State(fleet.Worker, zmq.Status) {}

// ingest takes the messages of a feed into an index and returns CPU time a
// message, in microseconds, and the size of a message.
func ingest(b *testing.B, form string, messages, rate int) (cpuMicros, size float64) {
	b.Helper()
	publisher := startChild(b, "publisher", form, strconv.Itoa(ingestWorkers), strconv.Itoa(messages), strconv.Itoa(rate))
	in, err := zmq.New(zmq.DefaultConfig(), slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	go func() { ended <- in.Run(ctx) }()
	x := exact.New(ingestSize)
	began := cpuTime()
	for i, addr := range publisher.addrs {
		src := zmq.Source{Worker: fleet.Worker{ID: fleet.WorkerID(i + 1)}, Endpoint: addr, Sink: ingestSink{x}}
		if err := in.Register(src); err != nil {
			b.Fatal(err)
		}
	}
	err = ingested(in, messages/ingestWorkers)
	used := cpuTime() - began
	cancel()
	if ended := <-ended; err == nil {
		err = ended
	}
	if err != nil {
		b.Fatal(err)
	}
	for i := range publisher.addrs {
		if got := x.Blocks(fleet.Worker{ID: fleet.WorkerID(i + 1)})[0]; got != messages/ingestWorkers*ingestBlocks {
			b.Fatalf("worker %d has %d blocks, want %d", i+1, got, messages/ingestWorkers*ingestBlocks)
		}
	}
	return float64(used.Nanoseconds()) / 1000 / float64(messages), float64(len(eventsOf(form, 1, 2)[1]))
}

// ingested waits until all workers' last messages are applied.
func ingested(in *zmq.DirectIngress, each int) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(time.Minute); ; {
		done := 0
		for i := range ingestWorkers {
			st, _ := in.Status(fleet.Worker{ID: fleet.WorkerID(i + 1)})
			if st.Gaps > 0 {
				return fmt.Errorf("worker %d: %d messages are missing", i+1, st.Gaps)
			}
			if st.Seen && st.LastSeq == uint64(each-1) {
				done++
			}
		}
		if done == ingestWorkers {
			return nil
		}
		select {
		case <-tick.C:
		case <-deadline:
			return fmt.Errorf("%d of %d workers have all after a minute", done, ingestWorkers)
		}
	}
}
