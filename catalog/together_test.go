package catalog_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/catalog"
	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/fleet"
)

// changesOf counts the changes that a ledger's core is told and the workers in each.
type changesOf struct {
	*ledger
	mu    sync.Mutex
	sizes []int
	hold  chan struct{} // nil holds nothing up
}

func (c *changesOf) Commit(ch core.Change) error {
	c.mu.Lock()
	c.sizes = append(c.sizes, len(ch.Upserts))
	c.mu.Unlock()
	if c.hold != nil {
		<-c.hold
	}
	return c.ledger.Commit(ch)
}

// asleep is a health that answers for some workers when it is let.
type asleep map[fleet.WorkerID]chan struct{}

func (a asleep) Standing(_ context.Context, r fleet.Record) (core.Lifecycle, []string) {
	if wake := a[r.ID]; wake != nil {
		<-wake
	}
	return core.Ready, nil
}

func TestWorkersThatAreReadyTogetherAreOneChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &changesOf{ledger: newLedger()}
		first := make(chan struct{})
		r := catalog.New(catalog.Parts{Core: c, Listeners: c, Engines: c, Health: asleep{1: first}}, slog.New(slog.DiscardHandler))
		var list []fleet.Record
		for id := range fleet.WorkerID(100) {
			list = append(list, record(t, id+1))
		}
		done := make(chan error, 1)
		go func() { done <- r.Apply(context.Background(), "file", list) }()
		synctest.Wait() // all others wait for the lowest id
		close(first)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]int{100}, c.sizes); diff != "" {
			t.Error(diff)
		}
	})
}

func TestWhatComesWhileAChangeIsMadeGoesIntoTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &changesOf{ledger: newLedger(), hold: make(chan struct{})}
		slow := asleep{}
		var list []fleet.Record
		for id := fleet.WorkerID(1); id <= 50; id++ {
			list = append(list, record(t, id))
			slow[id] = make(chan struct{})
		}
		r := catalog.New(catalog.Parts{Core: c, Listeners: c, Engines: c, Health: slow}, slog.New(slog.DiscardHandler))
		done := make(chan error, 1)
		go func() { done <- r.Apply(context.Background(), "file", list) }()
		for id := fleet.WorkerID(50); id >= 1; id-- { // each alone, the highest first, after the order counts no more
			<-time.After(200 * time.Millisecond) // the bubble's clock
			close(slow[id])
			synctest.Wait()
		}
		close(c.hold)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]int{1, 49}, c.sizes); diff != "" {
			t.Error(diff)
		}
	})
}

func TestADrainThatCannotBeRememberedDoesNotBegin(t *testing.T) {
	l := newLedger()
	drains, err := catalog.OpenDrains(filepath.Join(t.TempDir(), "gone", "drains.json"))
	if err != nil {
		t.Fatal(err)
	}
	r := catalog.New(catalog.Parts{Core: l, Listeners: l, Engines: l, Drains: drains}, slog.New(slog.DiscardHandler))
	apply(t, r, record(t, 1))
	l.told()
	if _, err := r.Drain("w1", time.Minute); err == nil || !strings.Contains(err.Error(), "store drains") {
		t.Errorf("got %v", err)
	}
	wantTold(t, l)
	if v, _ := r.Worker("w1"); v.Lifecycle != core.Ready || v.DrainUntil != nil {
		t.Errorf("got %s until %v", v.Lifecycle, v.DrainUntil)
	}
}

func TestAWorkerThatDoesNotDrainIsLeftAsItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "drains.json")
		drains, err := catalog.OpenDrains(file)
		if err != nil {
			t.Fatal(err)
		}
		s := newStage()
		s.standing[1] = standing{core.Ejected, []string{"it is sick"}}
		s.engines["http://127.0.0.1:8001"] = told{facts: catalog.Facts{Engine: "vllm", Models: []string{"m"}, BlockSize: 16}}
		r := catalog.New(catalog.Parts{Core: s, Listeners: s, Engines: s, Health: s, Drains: drains}, slog.New(slog.DiscardHandler))
		apply(t, r, record(t, 1, func(r *fleet.Record) { r.BlockSize = 0 }), record(t, 2, func(r *fleet.Record) { r.BlockSize = 0 }))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- r.Run(ctx) }()
		<-time.After(time.Second) // the bubble's clock
		s.take()
		s.counts()
		changed := r.Changed()
		for name, want := range map[string]core.Lifecycle{"w1": core.Ejected, "w2": core.Incomplete} {
			if v, err := r.Undrain(ctx, name); err != nil || v.Lifecycle != want {
				t.Errorf("%s: got %s, %v", name, v.Lifecycle, err)
			}
		}
		<-time.After(400 * time.Millisecond)
		select {
		case <-changed:
			t.Error("a change was told")
		default:
		}
		if told, asked := s.take(), s.counts(); len(told) > 0 || strings.Contains(asked, "w1") {
			t.Errorf("told %q, asked %q", told, asked)
		}
		if _, err := os.Stat(file); !os.IsNotExist(err) {
			t.Errorf("the file was written: %v", err)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func TestAFileOfDrainsThatIsNoneStopsTheStart(t *testing.T) {
	file := filepath.Join(t.TempDir(), "drains.json")
	for text, ok := range map[string]bool{
		`{"7":{"until":"2026-01-02T03:04:05Z"}}`: true, `{}`: true, `null`: true, `{"7":null}`: true,
		``: false, `[]`: false, `{"seven":{}}`: false, `{"7":{"until":"soon"}}`: false,
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := catalog.OpenDrains(file); (err == nil) != ok {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestWhatChangesDuringAnAttemptIsLookedAtAfterIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLedger()
		hold := make(chan struct{})
		slow := asleep{1: hold}
		r := catalog.New(catalog.Parts{Core: l, Listeners: l, Engines: l, Health: slow}, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- r.Run(ctx) }()
		go func() { _ = r.Apply(ctx, "file", []fleet.Record{record(t, 1)}) }()
		synctest.Wait()
		if _, err := r.Drain("w1", time.Hour); err != nil { // while it is looked at for the first time
			t.Fatal(err)
		}
		close(hold)
		<-time.After(time.Second) // the bubble's clock
		if diff := cmp.Diff(map[string]string{"w1": "draining"}, lifecycles(r)); diff != "" {
			t.Error(diff)
		}
		for _, line := range l.told() {
			if line != "upsert 1" {
				t.Errorf("told %q", line)
			}
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
