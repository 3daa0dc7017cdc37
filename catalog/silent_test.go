package catalog_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/catalog"
	"github.com/routerd/routerd/fleet"
)

const silence = 2 * time.Second // how long the probe of a silent engine takes

// probes answers for some workers late or with an error and writes down when
// each was asked.
type probes struct {
	mu     sync.Mutex
	asked  map[string][]time.Time
	answer func(url string) (time.Duration, int, error)
}

func (p *probes) probe(url string) (int, error) {
	p.mu.Lock()
	p.asked[url] = append(p.asked[url], time.Now())
	p.mu.Unlock()
	after, size, err := p.answer(url)
	<-time.After(after) // the bubble's clock
	return size, err
}

func probing(answer func(url string) (time.Duration, int, error)) (*probes, *catalog.Reconciler) {
	p := &probes{asked: map[string][]time.Time{}, answer: answer}
	l := newLedger()
	l.probe = p.probe
	return p, catalog.New(catalog.Parts{Core: l, Listeners: l, Engines: l}, slog.New(slog.DiscardHandler))
}

func unsized(r *fleet.Record) { r.BlockSize = 0 }

func TestManySilentWorkersDelayAListByOneProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, r := probing(func(string) (time.Duration, int, error) { return silence, 0, errors.New("timeout") })
		list := []fleet.Record{record(t, 100)}
		for id := range fleet.WorkerID(40) {
			list = append(list, record(t, id+1, unsized))
		}
		began := time.Now()
		done := make(chan error, 1)
		go func() { done <- r.Apply(context.Background(), "file", list) }()
		<-time.After(silence / 4) // the bubble's clock
		if got := lifecycles(r)["w100"]; got != "ready" {
			t.Errorf("a worker beside silent ones is %q", got)
		}
		if err := <-done; err != nil || time.Since(began) > silence+silence/4 {
			t.Errorf("the list took %s, %v", time.Since(began), err)
		}
	})
}

func TestAnUnchangedWorkerIsLeftToItsRetries(t *testing.T) {
	p, r := probing(func(string) (time.Duration, int, error) { return 0, 0, errors.New("connection refused") })
	silent := record(t, 1, unsized)
	apply(t, r, silent)
	apply(t, r, silent, record(t, 2))
	if n := len(p.asked[silent.URL]); n != 1 {
		t.Errorf("asked %d times, want once", n)
	}
}

func TestTheLowestIDProbedTogetherFixesTheBlockSize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := record(t, 1, unsized)
		_, r := probing(func(url string) (time.Duration, int, error) {
			if url == first.URL {
				return 50 * time.Millisecond, 16, nil
			}
			return 0, 32, nil
		})
		apply(t, r, record(t, 2, unsized), first)
		want := map[string]string{"w1": "ready", "w2": "incomplete block_size_mismatch: existing=16 requested=32"}
		if diff := cmp.Diff(want, lifecycles(r)); diff != "" {
			t.Error(diff)
		}
	})
}

func TestM6_SilentWorkersStarveNoRetryOfAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refused := record(t, 100, unsized)
		p, r := probing(func(url string) (time.Duration, int, error) {
			if url == refused.URL {
				return 0, 0, errors.New("connection refused")
			}
			return silence, 0, errors.New("timeout")
		})
		list := []fleet.Record{refused}
		for id := range fleet.WorkerID(90) {
			list = append(list, record(t, id+1, unsized))
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- r.Run(ctx) }()
		apply(t, r, list...)
		<-time.After(time.Minute) // the bubble's clock
		cancel()
		<-ended
		tries := p.asked[refused.URL]
		if len(tries) < 10 {
			t.Errorf("only %d tries in a minute", len(tries))
		}
		for i := 1; i < len(tries); i++ {
			if gap := tries[i].Sub(tries[i-1]); gap > 6*time.Second {
				t.Errorf("try %d came %s after the one before", i, gap)
			}
		}
	})
}

func TestRunBringsWhatWasOnlyPlanned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, r := probing(func(string) (time.Duration, int, error) { return 0, 16, nil })
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- r.Run(ctx) }()
		if _, err := r.Plan("file", []fleet.Record{record(t, 1, unsized)}); err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Second) // the bubble's clock
		if got := lifecycles(r)["w1"]; got != "ready" {
			t.Errorf("got %q", got)
		}
		cancel()
		<-ended
	})
}
