package zmq_test

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/indexer/exact"
	"github.com/routerd/routerd/ingress/wire"
	"github.com/routerd/routerd/ingress/wire/wiretest"
	"github.com/routerd/routerd/ingress/zmq"
	"github.com/routerd/routerd/kvcache"
)

func TestParentZeroIsTheRootOfOneEngineOnly(t *testing.T) {
	messages := wiretest.Messages(t, "llmd_sim_array")[:1]
	for engine, want := range map[string]int{zmq.EngineLLMD: 2, "vllm": 0} {
		p, in := newPublisher(t, false), start(t, quick())
		s := newSink()
		s.Index = exact.New(16)
		must(t, in.Register(zmq.Source{Worker: w1, Engine: engine, Endpoint: p.endpoint, Sink: s}))
		p.joined()
		for _, m := range messages {
			p.frames([]byte("other"), m[1], m[2])
			p.frames(m...)
		}
		st := untilSeq(t, in, 1)
		if got := s.Blocks(w1)[0]; got != want || st.Trusted != (want > 0) {
			t.Errorf("%s: %d blocks, want %d; status %+v", engine, got, want, st)
		}
	}
}

func TestAdapterNumbersAreResolvedOrBecomeAScope(t *testing.T) {
	p, in := newPublisher(t, false), start(t, quick())
	s := newSink()
	s.Index = exact.New(16)
	names := func(id int64) (string, bool) { return "sql-adapter", id == 7 }
	must(t, in.Register(zmq.Source{Worker: w1, Endpoint: p.endpoint, AdapterName: names, Sink: s}))
	p.joined()
	tokens := loraTokens(t)
	for _, m := range wiretest.Messages(t, "vllm_0_9_0_lora") {
		p.frames(m...)
	}
	untilSeq(t, in, 3)
	checkScopes(t, s, tokens, map[string]uint32{"": 4, "sql-adapter": 3, "#7": 0, "#8": 2})
}

// checkScopes compares how many blocks of a prompt are found for some adapters.
func checkScopes(t *testing.T, s *sink, tokens []uint32, want map[string]uint32) {
	t.Helper()
	for adapter, n := range want {
		blocks, err := kvcache.BlockHashes(nil, tokens, 16, kvcache.Seed(adapter, ""))
		must(t, err)
		out := make([]kvcache.Overlap, 1)
		if s.Find(blocks, []fleet.Worker{w1}, out); out[0].Device != n {
			t.Errorf("adapter %q: %d, want %d", adapter, out[0].Device, n)
		}
	}
}

// What was stored before the table knew an adapter's name is nobody's until the engine
// stores it again: blocks of the number's scope are not those of the name's.
func TestAnAdapterThatIsNamedLaterHasWhatIsStoredFromThenOn(t *testing.T) {
	p, in := newPublisher(t, false), start(t, quick())
	s := newSink()
	s.Index = exact.New(16)
	var known atomic.Bool
	names := func(id int64) (string, bool) { return "sql-adapter", id == 7 && known.Load() }
	must(t, in.Register(zmq.Source{Worker: w1, Endpoint: p.endpoint, AdapterName: names, Sink: s}))
	p.joined()
	tokens := loraTokens(t)
	messages := wiretest.Messages(t, "vllm_0_9_0_lora")
	for _, m := range messages {
		p.frames(m...)
	}
	untilSeq(t, in, 3)
	checkScopes(t, s, tokens, map[string]uint32{"": 4, "sql-adapter": 0, "#7": 3, "#8": 2})
	known.Store(true)
	for i, m := range messages {
		p.frames(m[0], wire.SequenceFrame(uint64(4+i)), m[2])
	}
	untilSeq(t, in, 7)
	checkScopes(t, s, tokens, map[string]uint32{"": 4, "sql-adapter": 3, "#7": 0, "#8": 2})
}

// loraTokens are the tokens of the first store of a capture with adapters.
func loraTokens(t *testing.T) []uint32 {
	t.Helper()
	var tokens []uint32
	for _, raw := range wiretest.Description(t, "vllm_0_9_0_lora").Messages[0].Events[0].Tokens {
		tokens = append(tokens, number(t, string(raw)))
	}
	return tokens
}

func number(t *testing.T, text string) uint32 {
	t.Helper()
	var n uint32
	for _, c := range text {
		n = 10*n + uint32(c-'0')
	}
	return n
}

func TestRegistrationsBeforeAndAfterRun(t *testing.T) {
	p, s := newPublisher(t, false), newSink()
	reg := prometheus.NewRegistry()
	in, err := zmq.New(quick(), slog.New(slog.DiscardHandler), reg)
	must(t, err)
	must(t, in.Register(zmq.Source{Worker: w1, Endpoint: p.endpoint, Sink: s}))
	gone := fleet.Worker{ID: 5}
	must(t, in.Register(zmq.Source{Worker: gone, Endpoint: p.endpoint, Sink: s}))
	in.Unregister(gone)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { must(t, in.Run(ctx)) })
	p.joined()
	p.send(0, payload(store(-1, 10)))
	untilSeq(t, in, 0)
	if d := cmp.Diff(map[string]float64{"live": 1}, streams(t, reg)); d != "" {
		t.Error(d)
	}
	cancel()
	running.Wait()
	in.Unregister(w1)
	if err := in.Register(zmq.Source{Worker: w1, Endpoint: p.endpoint, Sink: s}); err == nil {
		t.Error("a registration after Run is accepted")
	}
	if err := in.Run(t.Context()); err == nil {
		t.Error("a second Run is accepted")
	}
}

// streams reads the gauge of streams by state, without zeros, and checks the names of all metrics.
func streams(t *testing.T, reg *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := reg.Gather()
	must(t, err)
	got := map[string]float64{}
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), "routerd_ingress_") || f.GetHelp() == "" {
			t.Errorf("metric %s", f.GetName())
		}
		for _, m := range f.GetMetric() {
			if v := m.GetGauge().GetValue(); f.GetName() == "routerd_ingress_streams" && v != 0 {
				got[m.GetLabel()[0].GetValue()] = v
			}
		}
	}
	return got
}
