package catalog_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/routerd/routerd/catalog"
	"github.com/routerd/routerd/fleet"
)

// place is a source whose place can be lost.
type place struct {
	name string

	mu      sync.Mutex // guards the fields below
	list    []fleet.Record
	lost    error // what Watch returns
	closed  bool  // Watch ends without a reason
	silent  bool  // changes are not noticed by Watch
	slow    time.Duration
	watches []time.Time
	changed chan struct{}
}

func newPlace(name string, list ...fleet.Record) *place {
	return &place{name: name, list: list, changed: make(chan struct{})}
}

func (p *place) change(f func()) {
	p.mu.Lock()
	f()
	close(p.changed)
	p.changed = make(chan struct{})
	p.mu.Unlock()
	if !p.silent {
		synctest.Wait()
	}
}

func (p *place) set(list ...fleet.Record) { p.change(func() { p.list = list }) }

func (p *place) Name() string { return p.name }

func (p *place) List(context.Context) ([]fleet.Record, error) {
	p.mu.Lock()
	list, lost, slow := p.list, p.lost, p.slow
	p.mu.Unlock()
	<-time.After(slow) // the bubble's clock
	return list, lost
}

func (p *place) Watch(ctx context.Context, give func([]fleet.Record) error) error {
	p.mu.Lock()
	p.watches = append(p.watches, time.Now())
	p.mu.Unlock()
	for first := true; ; first = false {
		p.mu.Lock()
		list, lost, closed, silent, changed := p.list, p.lost, p.closed, p.silent, p.changed
		p.mu.Unlock()
		if lost != nil {
			return lost
		}
		if closed {
			return nil
		}
		if first || !silent {
			_ = give(list)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
	}
}

// following follows the places until the test ends.
type following struct {
	t       *testing.T
	ledger  *ledger
	r       *catalog.Reconciler
	sources *catalog.Sources
	log     *bytes.Buffer // read when everybody waits
}

func follow(t *testing.T, cfg catalog.FollowConfig, places ...*place) *following {
	t.Helper()
	l := newLedger()
	f := &following{t: t, ledger: l, r: newReconciler(l), log: &bytes.Buffer{}}
	f.sources = catalog.NewSources(f.r, slog.New(slog.NewTextHandler(f.log, nil)))
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for _, p := range places {
		all.Go(func() {
			if err := f.sources.Follow(ctx, p, cfg); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
	}
	t.Cleanup(func() { cancel(); all.Wait() })
	return f
}

func (f *following) status(name string) catalog.SourceStatus {
	f.t.Helper()
	for _, s := range f.sources.Status() {
		if s.Name == name {
			return s
		}
	}
	f.t.Fatalf("no source %s", name)
	return catalog.SourceStatus{}
}

func (f *following) told(want ...string) {
	f.t.Helper()
	synctest.Wait()
	if diff := cmp.Diff(want, f.ledger.told()); diff != "" {
		f.t.Error(diff)
	}
}

func (f *following) logged(text string, times int) {
	f.t.Helper()
	if got := strings.Count(f.log.String(), text); got != times {
		f.t.Errorf("%q is in the log %d times, want %d:\n%s", text, got, times, f.log)
	}
}

// counts compares a metric of the only source.
func (f *following) counts(name string, want float64) {
	f.t.Helper()
	reg := prometheus.NewPedanticRegistry()
	if err := f.sources.Register(reg); err != nil {
		f.t.Fatal(err)
	}
	families, err := reg.Gather()
	if err != nil {
		f.t.Fatal(err)
	}
	for _, fam := range families {
		if fam.GetName() != name {
			continue
		}
		if m := fam.GetMetric(); len(m) != 1 || m[0].GetCounter().GetValue()+m[0].GetGauge().GetValue() != want {
			f.t.Errorf("%s is %v, want %g", name, m, want)
		}
		return
	}
	f.t.Errorf("no metric %s", name)
}

func wait(d time.Duration) {
	<-time.After(d) // the bubble's clock
	synctest.Wait()
}

func TestM5_AListThatHoldsAWorkerTwiceChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlace("dns", record(t, 1), record(t, 2))
		f := follow(t, catalog.DefaultFollowConfig(), p)
		f.told("upsert 1", "upsert 2")
		other := record(t, 5, func(r *fleet.Record) { r.Name, r.URL = "other", "http://127.0.0.1:9999" })
		p.set(record(t, 5), record(t, 6), record(t, 7), record(t, 8), other)
		f.told()
		st := f.status("dns")
		if !strings.Contains(st.Refused, `id "5" is taken`) || st.Workers != 2 || !st.Up {
			t.Errorf("the source stands as %+v", st)
		}
		wait(5 * time.Minute) // comparisons find the same list
		f.told()
		f.logged("list of workers refused", 1)
		p.set(record(t, 5), other)
		f.logged("list of workers refused", 2)
		f.counts("routerd_source_refusals_total", 2)
		p.set(record(t, 1), record(t, 5))
		f.told("remove 2", "upsert 5")
		if st := f.status("dns"); st.Refused != "" || st.Workers != 2 {
			t.Errorf("the source stands as %+v", st)
		}
	})
}

func TestARecordThatIsNotValidRefusesTheList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlace("dns", record(t, 1))
		f := follow(t, catalog.DefaultFollowConfig(), p)
		f.told("upsert 1")
		p.set(record(t, 2), fleet.Record{ID: 3, URL: "nonsense"})
		f.told()
		if st := f.status("dns"); !strings.HasPrefix(st.Refused, `worker 2 of the list: url: "nonsense"`) {
			t.Errorf("the source stands as %+v", st)
		}
		p.set(record(t, 1), fleet.Record{Name: "w3", URL: "HTTP://127.0.0.1:8003/", Model: "m", BlockSize: 16})
		synctest.Wait()
		if v, ok := f.r.Worker("w3"); !ok || v.URL != "http://127.0.0.1:8003" || v.Group != fleet.DefaultName {
			t.Errorf("a record was not normalised: %+v", v)
		}
	})
}

func TestM7_ALostSourceKeepsItsListAndComesBackWithoutATouch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlace("dns", record(t, 1, ranks(2, false)), record(t, 2))
		f := follow(t, catalog.DefaultFollowConfig(), p)
		f.told("listen 1/0 tcp://127.0.0.1:5000", "listen 1/1 tcp://127.0.0.1:5001", "upsert 1", "upsert 2")
		f.counts("routerd_source_up", 1)
		began := time.Now()
		p.change(func() { p.closed = true })
		f.told()
		f.counts("routerd_source_up", 0)
		if st := f.status("dns"); st.Up || st.Err == "" || st.Workers != 2 || !st.Since.Equal(began) {
			t.Errorf("the source stands as %+v", st)
		}
		f.logged("level=WARN msg=\"source lost", 1)
		p.change(func() { p.lost = errors.New("connection refused") })
		wait(20 * time.Second)
		f.told()
		f.counts("routerd_source_up", 0)
		f.logged("level=WARN msg=\"source lost", 2) // another reason
		if st := f.status("dns"); st.Err != "connection refused" || !st.Since.Equal(began) {
			t.Errorf("the source stands as %+v", st)
		}
		p.change(func() { p.lost, p.closed = nil, false })
		wait(30 * time.Second)
		f.told()
		f.counts("routerd_source_up", 1)
		f.counts("routerd_source_losses_total", 1)
		f.counts("routerd_source_workers", 2)
		f.logged("source is back", 1)
		p.set(record(t, 1, ranks(2, false)), record(t, 3))
		f.told("remove 2", "upsert 3")
	})
}

func TestALostSourceIsTriedWithGrowingPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlace("dns")
		p.lost = errors.New("connection refused")
		cfg := catalog.DefaultFollowConfig()
		f := follow(t, cfg, p)
		wait(5 * time.Minute)
		want := cfg.RetryFirst
		for i, at := range p.watches[1:] {
			if got := at.Sub(p.watches[i]); got > want || got < want-want/5 {
				t.Errorf("pause %d is %s, want %s less up to a fifth", i+1, got, want)
			}
			want = min(2*want, cfg.RetryMost)
		}
		if len(p.watches) < 10 {
			t.Errorf("tried %d times only", len(p.watches))
		}
		f.logged("source lost", 1)
	})
}

func TestAComparisonHealsWhatWatchMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlace("dns", record(t, 1))
		f := follow(t, catalog.DefaultFollowConfig(), p)
		f.told("upsert 1")
		p.change(func() { p.silent, p.list = true, []fleet.Record{record(t, 2)} })
		wait(47 * time.Second)
		f.told()
		wait(26 * time.Second) // a fifth more than a minute is over
		f.told("remove 1", "upsert 2")
		p.change(func() { p.lost = errors.New("no") })
		wait(2 * time.Minute)
		f.told()
	})
}

func TestAComparisonThatIsOlderThanAChangeIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlace("dns", record(t, 1))
		p.slow = 50 * time.Second
		f := follow(t, catalog.DefaultFollowConfig(), p)
		f.told("upsert 1")
		wait(73 * time.Second) // a comparison has read the list and goes on for 23 s at least
		p.set(record(t, 1), record(t, 2))
		f.told("upsert 2")
		wait(50 * time.Second) // it ends
		f.told()
		if st := f.status("dns"); st.Workers != 2 {
			t.Errorf("the source stands as %+v", st)
		}
	})
}

func TestAWorkerBelongsToTheSourceThatBroughtItFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := newPlace("file", record(t, 1), record(t, 2)), newPlace("dns", record(t, 3))
		f := follow(t, catalog.DefaultFollowConfig(), first, second)
		f.told("upsert 1", "upsert 2", "upsert 3")
		second.set(record(t, 2), record(t, 4))
		f.told()
		if st := f.status("dns"); !strings.Contains(st.Refused, "worker w2 of source file") || st.Workers != 1 {
			t.Errorf("the source stands as %+v", st)
		}
		began := time.Now()
		first.set(record(t, 1)) // which lets go of it
		f.told("remove 2", "remove 3", "upsert 2", "upsert 4")
		if took := time.Since(began); took > time.Second {
			t.Errorf("the other source had it after %s", took)
		}
		if st := f.status("dns"); st.Refused != "" || st.Workers != 2 {
			t.Errorf("the source stands as %+v", st)
		}
	})
}

func TestASilentEngineDelaysNoListOfItsSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlace("dns", record(t, 1, unsized))
		l := newLedger()
		leave := make(chan struct{})
		l.probe = func(string) (int, error) { <-leave; return 16, nil }
		r := newReconciler(l)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- catalog.NewSources(r, slog.New(slog.DiscardHandler)).Follow(ctx, p, catalog.DefaultFollowConfig())
		}()
		synctest.Wait()
		p.set(record(t, 1, unsized), record(t, 2))
		if got := lifecycles(r); got["w1"] != "incomplete" || got["w2"] != "ready" {
			t.Errorf("got %v", got)
		}
		cancel()
		synctest.Wait()
		select {
		case <-ended:
			t.Error("it ended before what it began")
		default:
		}
		close(leave)
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func TestASourceIsFollowedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := follow(t, catalog.DefaultFollowConfig(), newPlace("dns"), newPlace("api"))
		if err := f.sources.Follow(t.Context(), newPlace("dns"), catalog.DefaultFollowConfig()); err == nil {
			t.Error("two sources have one name")
		}
		var names []string
		for _, s := range f.sources.Status() {
			names = append(names, s.Name)
		}
		if diff := cmp.Diff([]string{"api", "dns"}, names); diff != "" {
			t.Error(diff)
		}
	})
}
