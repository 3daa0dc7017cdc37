package zmq_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/indexer/exact"
	"github.com/routerd/routerd/ingress/stream"
	"github.com/routerd/routerd/ingress/zmq"
	"github.com/routerd/routerd/internal/testkit"
	"github.com/routerd/routerd/kvcache"
)

func TestK1_AGapIsWarnedOfOnce(t *testing.T) {
	log := new(testkit.Log)
	in, err := zmq.New(quick(), slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelWarn})), prometheus.NewRegistry())
	must(t, err)
	keepRunning(t, func(ctx context.Context) error { return in.Run(ctx) })
	p, s := newPublisher(t, false), newSink()
	listen(t, in, p, s)
	for _, seq := range []uint64{0, 1, 2, 5, 6} {
		p.send(seq, payload(store(-1, uint32(10+seq))))
	}
	untilSeq(t, in, 6)
	if log.Count("level=WARN") != 1 || log.Count("reason=gap missing=2") != 1 {
		t.Errorf("the log says\n%s", log)
	}
}

// A copied line makes one engine's events another worker's too.
func TestTwoWorkersOfOnePublisherAreToldOf(t *testing.T) {
	log := new(testkit.Log)
	in, err := zmq.New(quick(), slog.New(slog.NewTextHandler(log, nil)), prometheus.NewRegistry())
	must(t, err)
	register := func(w fleet.Worker, endpoint string) {
		must(t, in.Register(zmq.Source{Worker: w, Name: fmt.Sprint("w", w.ID), Endpoint: endpoint, Sink: newSink()}))
	}
	const one, other = "tcp://127.0.0.1:1", "tcp://127.0.0.1:2"
	told := func(want int) {
		t.Helper()
		if got := log.Count("two workers name one publisher"); got != want {
			t.Fatalf("told %d times, want %d\n%s", got, want, log)
		}
	}
	register(fleet.Worker{ID: 1}, one)
	register(fleet.Worker{ID: 1, Rank: 1}, one) // whose batches name the rank
	register(fleet.Worker{ID: 2}, other)
	told(0)
	register(fleet.Worker{ID: 3}, one)
	told(1)
	in.Unregister(fleet.Worker{ID: 2})
	register(fleet.Worker{ID: 4}, other)
	told(1)
	keepRunning(t, func(ctx context.Context) error { return in.Run(ctx) })
}

// A topic comes from whoever connects, and may be as long as a message.
func TestALongTopicOfNobodysIsNotTakenIntoTheLog(t *testing.T) {
	log := new(testkit.Log)
	in, err := zmq.New(quick(), slog.New(slog.NewTextHandler(log, nil)), prometheus.NewRegistry())
	must(t, err)
	keepRunning(t, func(ctx context.Context) error { return in.Run(ctx) })
	ours, theirs := freeEndpoint(t)
	must(t, in.Register(zmq.Source{Worker: w1, Name: "pod-1", Endpoint: ours, Sink: newSink()}))
	p := engineOf(t, theirs)
	p.sendAs("kv@"+strings.Repeat("x", 1<<20)+"@m", 0, payload(store(-1, 66)))
	testkit.Until(t, "it is told of", func() bool { return log.Count("none of the workers of its endpoint") > 0 })
	if n := len(log.String()); n > 10_000 {
		t.Errorf("the log has %d bytes", n)
	}
}

func TestK2_ARestartLeavesOtherWorkersAlone(t *testing.T) {
	p, q, s, in := newPublisher(t, false), newPublisher(t, false), newSink(), start(t, quick())
	other := fleet.Worker{ID: 2}
	must(t, in.Register(zmq.Source{Worker: other, Name: "w2", Endpoint: q.endpoint, Sink: s}))
	q.joined()
	q.send(0, payload(store(-1, 10, 11)))
	testkit.Until(t, "the other worker's message is applied", func() bool { st, _ := in.Status(other); return st.Seen })
	listen(t, in, p, s)
	p.send(0, payload(store(-1, 10)))
	p.send(1, payload(store(10, 11)))
	untilSeq(t, in, 1)
	p.send(0, payload(store(-1, 7)))
	untilSeq(t, in, 0)
	if mine, others := overlap(t, s, w1, 10, 11), overlap(t, s, other, 10, 11); mine != 0 || others != 2 {
		t.Errorf("overlaps %d and, of the other worker, %d; want 0 and 2", mine, others)
	}
	if st, _ := in.Status(other); st.Restarts != 0 || !st.Trusted {
		t.Errorf("the other worker's status %+v", st)
	}
}

func TestK5_AStoreBelowAnUnknownParentIsShown(t *testing.T) {
	p, s, in := newPublisher(t, false), newSink(), start(t, quick())
	listen(t, in, p, s)
	p.send(0, payload(store(999, 10, 11, 12)))
	st := untilSeq(t, in, 0)
	if d := cmp.Diff(map[string]uint64{"unknown_parent": 3}, st.Dropped); d != "" {
		t.Error(d)
	}
	if st.Trusted || st.State != stream.Degraded || st.Reason != "unknown_parent" || overlap(t, s, w1, 10, 11, 12) != 0 {
		t.Errorf("status %+v", st)
	}
}

func TestK9_AnotherBlockSizeIsShownAndHarmsNobodyElse(t *testing.T) {
	p, s, in := newPublisher(t, false), newSink(), start(t, quick())
	other := fleet.Worker{ID: 2}
	s.Apply(other, []kvcache.Event{{Kind: kvcache.Stored, Hashes: []kvcache.EngineHash{kvcache.NumberHash(10)}, Tokens: []uint32{0, 0}, BlockSize: blockSize}})
	listen(t, in, p, s)
	p.send(0, event{hash: 9}.payload(4*blockSize))
	st := untilSeq(t, in, 0)
	if d := cmp.Diff(map[string]uint64{"block_size_mismatch": 1}, st.Dropped); d != "" {
		t.Error(d)
	}
	if st.Trusted || st.State != stream.Degraded || st.Reason != "block_size_mismatch" {
		t.Errorf("status %+v", st)
	}
	if mine, others := overlap(t, s, w1, 0, 0, 0, 0), overlap(t, s, other, 0, 0, 0, 0); mine != 0 || others != 1 {
		t.Errorf("overlaps %d and, of the other worker, %d; want 0 and 1", mine, others)
	}
}

// on puts a medium to an event that store or drop packed.
func on(medium string, e []byte) []byte {
	if e[0] == 0x95 {
		e = append(e, 0xc0) // no adapter's number
		e[0]++
	}
	e[0]++
	return append(append(e, 0xa0|byte(len(medium))), medium...)
}

func TestK12_MediaAreTiersAndAnUnknownOneIsIgnored(t *testing.T) {
	p, s, in := newPublisher(t, false), newSink(), start(t, quick())
	listen(t, in, p, s)
	p.send(0, payload(on("GPU", store(-1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10))))
	p.send(1, payload(on("GPU", drop(6, 7, 8, 9, 10)), on("CPU", store(5, 6, 7, 8, 9, 10)), on("HOLOGRAM", store(-1, 11, 12))))
	st := untilSeq(t, in, 1)
	if d := cmp.Diff(map[string]uint64{"unknown_medium": 1}, st.Dropped); d != "" {
		t.Error(d)
	}
	var tokens []uint32
	for h := range uint32(12) {
		tokens = append(tokens, h+1, h+1)
	}
	blocks, err := kvcache.BlockHashes(nil, tokens, blockSize, kvcache.Seed("", ""))
	must(t, err)
	out := make([]kvcache.Overlap, 1)
	s.Find(blocks, []fleet.Worker{w1}, out)
	if want := (kvcache.Overlap{Device: 5, Host: 5}); out[0] != want || !st.Trusted {
		t.Errorf("overlap %+v, want %+v; status %+v", out[0], want, st)
	}
}

func TestAnIndexWithoutRoomIsWhyARankIsNotTrusted(t *testing.T) {
	p, s, in := newPublisher(t, false), newSink(), start(t, quick())
	s.Index = exact.NewCapped(blockSize, 1)
	listen(t, in, p, s)
	p.send(0, payload(store(-1, 10)))
	if st := untilSeq(t, in, 0); st.Trusted || st.Reason != "index_full" || st.Dropped["index_full"] != 1 {
		t.Errorf("status %+v", st)
	}
}
