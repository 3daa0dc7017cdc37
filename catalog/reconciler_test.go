package catalog_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/routerd/routerd/catalog"
	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/fleet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// ledger plays the core, the listeners and the engines, and writes down what it
// is told.
type ledger struct {
	mu         sync.Mutex
	lines      []string
	blockSizes map[fleet.PartitionKey]int
	workers    map[fleet.WorkerID]fleet.Record
	listening  map[fleet.Worker]string
	records    map[fleet.Worker]func() *fleet.Record

	configured int
	probe      func(url string) (int, error)
	prepare    func(key fleet.PartitionKey)
	listenErr  error
	commitErr  error
}

func newLedger() *ledger {
	return &ledger{
		blockSizes: map[fleet.PartitionKey]int{}, workers: map[fleet.WorkerID]fleet.Record{}, listening: map[fleet.Worker]string{}, records: map[fleet.Worker]func() *fleet.Record{},
		probe: func(string) (int, error) { return 0, errors.New("connection refused") },
	}
}

func (l *ledger) note(format string, args ...any) {
	l.lines = append(l.lines, fmt.Sprintf(format, args...))
}

func (l *ledger) Prepare(_ context.Context, key fleet.PartitionKey, blockSize int) error {
	if l.prepare != nil {
		l.prepare(key)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if has, ok := l.blockSizes[key]; ok && has != blockSize {
		return &core.MismatchError{Partition: key, Field: "block_size", Has: strconv.Itoa(has), Requested: strconv.Itoa(blockSize)}
	}
	l.blockSizes[key] = blockSize
	return nil
}

func (l *ledger) Commit(ch core.Change) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.commitErr != nil && len(ch.Upserts) > 0 {
		return l.commitErr
	}
	for _, m := range ch.Upserts {
		l.workers[m.Record.ID] = m.Record
		l.note("upsert %d", m.Record.ID)
	}
	for _, id := range ch.Removals {
		if _, ok := l.workers[id]; !ok {
			return fmt.Errorf("worker %d is not there", id)
		}
		delete(l.workers, id)
		l.note("remove %d", id)
	}
	return nil
}

func (l *ledger) Listen(s catalog.Listening, record func() *fleet.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.listenErr != nil {
		return l.listenErr
	}
	l.listening[s.Worker], l.records[s.Worker] = s.Endpoint, record
	l.note("listen %s %s", s.Worker, s.Endpoint)
	return nil
}

func (l *ledger) Unlisten(_ fleet.PartitionKey, ranks ...fleet.Worker) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range ranks {
		delete(l.listening, w)
		l.note("unlisten %s", w)
	}
}

func (l *ledger) Configured(string) int { return l.configured }

func (l *ledger) Ask(_ context.Context, rec fleet.Record) (catalog.Facts, error) {
	size, err := l.probe(rec.URL)
	return catalog.Facts{BlockSize: size}, err
}

// told returns what was noted since the last call, sorted.
func (l *ledger) told() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	lines := l.lines
	l.lines = nil
	slices.Sort(lines)
	return lines
}

func record(t *testing.T, id fleet.WorkerID, change ...func(*fleet.Record)) fleet.Record {
	t.Helper()
	r := fleet.Record{ID: id, Name: fmt.Sprintf("w%d", id), URL: fmt.Sprintf("http://127.0.0.1:%d", 8000+id), Model: "m", BlockSize: 16}
	for _, c := range change {
		c(&r)
	}
	r, err := r.Normalised()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func ranks(n int, replay bool) func(*fleet.Record) {
	return func(r *fleet.Record) {
		r.DPSize = n
		r.KVEvents, r.Replay = map[int]string{}, map[int]string{}
		for i := range n {
			r.KVEvents[i] = fmt.Sprintf("tcp://127.0.0.1:%d", 5000+i)
			if replay {
				r.Replay[i] = fmt.Sprintf("tcp://127.0.0.1:%d", 6000+i)
			}
		}
	}
}

func newReconciler(l *ledger) *catalog.Reconciler {
	return catalog.New(catalog.Parts{Core: l, Listeners: l, Engines: l}, slog.New(slog.DiscardHandler))
}

func apply(t *testing.T, r *catalog.Reconciler, records ...fleet.Record) {
	t.Helper()
	if err := r.Apply(t.Context(), "file", records); err != nil {
		t.Fatal(err)
	}
}

func wantTold(t *testing.T, l *ledger, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, l.told(), cmp.Transformer("empty", func(s []string) []string { return append([]string{}, s...) })); diff != "" {
		t.Errorf("told (-want +got)\n%s", diff)
	}
}

func lifecycles(r *catalog.Reconciler) map[string]string {
	out := map[string]string{}
	for _, v := range r.Workers() {
		out[v.Name] = strings.TrimSpace(string(v.Lifecycle) + " " + strings.Join(v.Reasons, "; "))
	}
	return out
}

func TestAListIsAppliedByItsDifference(t *testing.T) {
	l := newLedger()
	r := newReconciler(l)
	apply(t, r, record(t, 1, ranks(1, true)), record(t, 2))
	wantTold(t, l, "listen 1/0 tcp://127.0.0.1:5000", "upsert 1", "upsert 2")
	apply(t, r, record(t, 1, ranks(1, true)), record(t, 2))
	wantTold(t, l)
	apply(t, r, record(t, 2), record(t, 3))
	wantTold(t, l, "remove 1", "unlisten 1/0", "upsert 3")
}

func TestM1_AnotherSpellingOfTheURLIsNoChange(t *testing.T) {
	l := newLedger()
	r := newReconciler(l)
	apply(t, r, record(t, 1, ranks(1, true), func(r *fleet.Record) { r.URL = "http://127.0.0.1:18000" }))
	l.told()
	apply(t, r, record(t, 1, ranks(1, true), func(r *fleet.Record) { r.URL = "HTTP://127.0.0.1:18000/" }))
	wantTold(t, l)
	err := r.Apply(t.Context(), "api", []fleet.Record{record(t, 2, func(r *fleet.Record) { r.URL = "http://127.0.0.1:18000" })})
	var conflict *catalog.ConflictError
	if !errors.As(err, &conflict) || conflict.Field != "url" {
		t.Errorf("a second worker at the same endpoint: got %v", err)
	}
}

func TestM4_MetadataChangesKeepListeners(t *testing.T) {
	l := newLedger()
	r := newReconciler(l)
	apply(t, r, record(t, 1, ranks(2, true)))
	l.told()
	apply(t, r, record(t, 1, ranks(2, true), func(r *fleet.Record) {
		r.TotalKVBlocks, r.Taints, r.Name = 2000, []string{"slow"}, "renamed"
		r.Adapters = []fleet.Adapter{{Name: "sql", ID: 7}}
	}))
	wantTold(t, l, "upsert 1")
	if got := l.records[fleet.Worker{ID: 1}]().Adapters; len(got) != 1 || got[0].Name != "sql" {
		t.Errorf("the subscriptions read adapters %v, want the new one", got)
	}
}

func TestFewerRanksEndTheListenersOfThoseThatLeftAndNothingElse(t *testing.T) {
	l := newLedger()
	r := newReconciler(l)
	apply(t, r, record(t, 1, ranks(4, true)))
	l.told()
	apply(t, r, record(t, 1, ranks(2, true)))
	wantTold(t, l, "unlisten 1/2", "unlisten 1/3", "upsert 1")
	if got := l.records[fleet.Worker{ID: 1}]().DPSize; got != 2 {
		t.Errorf("the subscription that stays reads dp_size %d, want 2", got)
	}
}

func TestAnotherEndpointStartsItsListenerAnew(t *testing.T) {
	l := newLedger()
	r := newReconciler(l)
	apply(t, r, record(t, 1, ranks(2, true)))
	l.told()
	apply(t, r, record(t, 1, ranks(2, true), func(r *fleet.Record) { r.KVEvents[0] = "tcp://127.0.0.1:7000" }))
	wantTold(t, l, "listen 1/0 tcp://127.0.0.1:7000", "unlisten 1/0", "upsert 1")
}

func TestM5_ARepeatedIDNameOrEndpointRefusesTheWholeList(t *testing.T) {
	for name, second := range map[string]func(*fleet.Record){
		"id":   func(r *fleet.Record) { r.ID = 1 },
		"name": func(r *fleet.Record) { r.Name = "w1" },
		"url":  func(r *fleet.Record) { r.URL = "http://127.0.0.1:8001" },
	} {
		t.Run(name, func(t *testing.T) {
			l := newLedger()
			r := newReconciler(l)
			apply(t, r, record(t, 9))
			l.told()
			err := r.Apply(t.Context(), "file", []fleet.Record{record(t, 1), record(t, 2, second), record(t, 3)})
			var conflict *catalog.ConflictError
			if !errors.As(err, &conflict) || conflict.Field != name {
				t.Fatalf("got %v, want a conflict about %s", err, name)
			}
			wantTold(t, l)
			if diff := cmp.Diff(map[string]string{"w9": "ready"}, lifecycles(r)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// An id that was made of the name, or a name of the id, is not what somebody typed.
func TestAConflictNamesWhatWasTyped(t *testing.T) {
	for want, pair := range map[string][2]fleet.Record{
		`name "w" is taken by worker w of the same list`: {{Name: "w", URL: "http://h:1"}, {Name: "w", URL: "http://h:2"}},
		`id "7" is taken by worker 7 of the same list`:   {{ID: 7, URL: "http://h:1"}, {ID: 7, URL: "http://h:2"}},
		`id "7" is taken by worker v of the same list`:   {{ID: 7, Name: "v", URL: "http://h:1"}, {ID: 7, Name: "w", URL: "http://h:2"}},
	} {
		var list []fleet.Record
		for _, rec := range pair {
			norm, err := rec.Normalised()
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, norm)
		}
		if err := newReconciler(newLedger()).Check("file", list); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestM6_AWorkerWithAnotherBlockSizeWaitsAndTheOthersServe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLedger()
		r := newReconciler(l)
		list := []fleet.Record{record(t, 1), record(t, 2, func(r *fleet.Record) { r.BlockSize = 32 }), record(t, 3)}
		apply(t, r, list...)
		want := map[string]string{"w1": "ready", "w2": "incomplete block_size_mismatch: existing=16 requested=32", "w3": "ready"}
		if diff := cmp.Diff(want, lifecycles(r)); diff != "" {
			t.Error(diff)
		}
		apply(t, r, record(t, 1), record(t, 2), record(t, 3))
		if diff := cmp.Diff(map[string]string{"w1": "ready", "w2": "ready", "w3": "ready"}, lifecycles(r)); diff != "" {
			t.Error(diff)
		}
	})
}

func TestM6_AFailedWorkerIsTriedAgainWithinSixSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLedger()
		var mu sync.Mutex
		var tries []time.Time
		l.probe = func(string) (int, error) {
			mu.Lock()
			defer mu.Unlock()
			tries = append(tries, time.Now())
			if len(tries) < 12 {
				return 0, errors.New("connection refused")
			}
			return 16, nil
		}
		r := newReconciler(l)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- r.Run(ctx) }()
		apply(t, r, record(t, 1, func(r *fleet.Record) { r.BlockSize = 0 }))
		if got := lifecycles(r)["w1"]; !strings.Contains(got, "block_size_unknown") || !strings.Contains(got, "connection refused") {
			t.Errorf("got %q", got)
		}
		<-time.After(90 * time.Second) // the bubble's clock
		if got := lifecycles(r)["w1"]; got != "ready" {
			t.Errorf("got %q", got)
		}
		mu.Lock()
		made := slices.Clone(tries[:min(len(tries), 12)]) // those after them only ask whether it is still the same
		mu.Unlock()
		gaps, kinds := []time.Duration{}, map[time.Duration]bool{}
		for i := 1; i < len(made); i++ {
			gap := made[i].Sub(made[i-1])
			if gaps = append(gaps, gap); i > 4 {
				kinds[gap] = true
			}
			if gap > 6*time.Second || gap < 250*time.Millisecond {
				t.Errorf("try %d came %s after the one before", i, gap)
			}
		}
		if first, last := gaps[0], gaps[len(gaps)-1]; first > time.Second || last < 4*time.Second || len(kinds) < 2 {
			t.Errorf("the tries came after %v: want growing pauses, of different lengths", gaps)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func TestTheModelsConfigurationDecidesTheBlockSize(t *testing.T) {
	l := newLedger()
	l.configured = 32
	r := newReconciler(l)
	apply(t, r, record(t, 1), record(t, 2, func(r *fleet.Record) { r.BlockSize = 0 }))
	want := map[string]string{"w1": "incomplete block_size_mismatch: the worker says 16, the model's configuration 32", "w2": "ready"}
	if diff := cmp.Diff(want, lifecycles(r)); diff != "" {
		t.Error(diff)
	}
	if got := l.blockSizes[fleet.PartitionKey{Model: "m", Group: "default"}]; got != 32 {
		t.Errorf("block size %d", got)
	}
}

func TestASlowPolicyDelaysNoOtherPartition(t *testing.T) {
	l := newLedger()
	hold, began := make(chan struct{}), make(chan struct{})
	l.prepare = func(key fleet.PartitionKey) {
		if key.Model == "slow" {
			close(began)
			<-hold
		}
	}
	r := newReconciler(l)
	done := make(chan error, 1)
	go func() {
		done <- r.Apply(context.Background(), "slow source", []fleet.Record{record(t, 1, func(r *fleet.Record) { r.Model = "slow" })})
	}()
	<-began
	apply(t, r, record(t, 2))
	if diff := cmp.Diff(map[string]string{"w1": "incomplete", "w2": "ready"}, lifecycles(r)); diff != "" {
		t.Error(diff)
	}
	close(hold)
	if err := <-done; err != nil || lifecycles(r)["w1"] != "ready" {
		t.Error(err, lifecycles(r))
	}
}

func TestAWorkerWithdrawnWhileItIsPreparedNeverAppears(t *testing.T) {
	l := newLedger()
	hold, began := make(chan struct{}), make(chan struct{})
	l.probe = func(string) (int, error) { close(began); <-hold; return 16, nil }
	r := newReconciler(l)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	first := make(chan error, 1)
	go func() {
		first <- r.Apply(ctx, "file", []fleet.Record{record(t, 1, func(r *fleet.Record) { r.BlockSize = 0 })})
	}()
	<-began
	done := make(chan error, 1)
	go func() { done <- r.Apply(context.Background(), "file", nil) }()
	close(hold)
	for _, ended := range []chan error{done, first} {
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
	}
	if len(l.workers) != 0 || len(r.Workers()) != 0 {
		t.Errorf("left %v %v", l.workers, r.Workers())
	}
}

func TestAWorkerThatMovesLeavesItsListenersBehind(t *testing.T) {
	l := newLedger()
	r := newReconciler(l)
	apply(t, r, record(t, 1, ranks(1, false)))
	l.told()
	apply(t, r, record(t, 1, ranks(1, false), func(r *fleet.Record) { r.Group = "other" }))
	wantTold(t, l, "listen 1/0 tcp://127.0.0.1:5000", "unlisten 1/0", "upsert 1")
}

func TestAListenerThatCannotStartIsShownAndTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLedger()
		l.listenErr = errors.New("no such device")
		r := newReconciler(l)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- r.Run(ctx) }()
		apply(t, r, record(t, 1, ranks(1, false)))
		if diff := cmp.Diff(map[string]string{"w1": "ready kv_events.0: no such device"}, lifecycles(r)); diff != "" {
			t.Error(diff)
		}
		l.mu.Lock()
		l.listenErr = nil
		l.mu.Unlock()
		<-time.After(10 * time.Second) // the bubble's clock
		if diff := cmp.Diff(map[string]string{"w1": "ready"}, lifecycles(r)); diff != "" {
			t.Error(diff)
		}
		cancel()
		<-ended
	})
}
