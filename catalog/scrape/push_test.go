package scrape_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/catalog"
	"github.com/routerd/routerd/catalog/scrape"
	"github.com/routerd/routerd/core/load"
	"github.com/routerd/routerd/fleet"
)

func TestWhatAnEnginePushesIsAReport(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		name string
		page int
		push scrape.Push
		want load.Report
		none bool
	}{
		{
			"all", 64,
			scrape.Push{At: now, Running: 3, Queued: 7, Tokens: 134401, MaxTokens: 320000},
			load.Report{At: now, Running: 3, Queued: 7, KVUsed: 2101, KVTotal: 5000, KVUsage: 134401.0 / 320000},
			false,
		},
		{
			"page unknown", 0,
			scrape.Push{At: now, Running: 3, Queued: 7, Tokens: 160000, MaxTokens: 320000},
			load.Report{At: now, Running: 3, Queued: 7, KVUsed: -1, KVTotal: -1, KVUsage: 0.5},
			false,
		},
		{
			"room unknown", 64,
			scrape.Push{At: now, Running: 0, Queued: -1, Tokens: 64, MaxTokens: 0},
			load.Report{At: now, Running: 0, Queued: -1, KVUsed: 1, KVTotal: -1, KVUsage: -1},
			false,
		},
		{"nothing", 64, scrape.Push{At: now, Running: -1, Queued: -1, Tokens: -1, MaxTokens: 5}, load.Report{}, true},
		{"absurd", 64, scrape.Push{At: now, Running: math.MaxInt64, Queued: -7, Tokens: math.MinInt64, MaxTokens: -1}, load.Report{}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := scrape.New(quick(), listOf(), discard())
			r := record(1, "http://127.0.0.1:1")
			r.BlockSize = c.page
			s.Known(r)
			s.Pushed(w1, c.push)
			got, ok := s.Report(w1)
			if diff := cmp.Diff(c.want, got); diff != "" || ok == c.none {
				t.Errorf("%v %s", ok, diff)
			}
		})
	}
}

func TestTheFresherReportWins(t *testing.T) {
	s := scrape.New(quick(), listOf(), discard())
	s.Known(record(1, "http://127.0.0.1:1"))
	now := time.Now()
	for _, p := range []struct {
		age           time.Duration
		running, want int64
	}{{3 * time.Second, 1, 1}, {time.Second, 2, 2}, {2 * time.Second, 3, 2}, {0, 4, 4}} {
		s.Pushed(w1, scrape.Push{At: now.Add(-p.age), Running: p.running})
		if got, _ := s.Report(w1); got.Running != p.want {
			t.Errorf("got %d, want %d", got.Running, p.want)
		}
	}
	s.Pushed(fleet.Worker{ID: 1, Rank: 5}, scrape.Push{At: now})
	s.Pushed(fleet.Worker{ID: 5}, scrape.Push{At: now})
	if _, _, pushed := s.Counted(); pushed != 4 {
		t.Errorf("%d counted", pushed)
	}
}

func TestReportsMayBePushedAndReadAtOnce(t *testing.T) {
	s := scrape.New(quick(), listOf(), discard())
	s.Known(record(1, "http://127.0.0.1:1"))
	now := time.Now()
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			for j := range 1000 {
				s.Pushed(w1, scrape.Push{At: now.Add(time.Duration(j) * time.Microsecond), Running: int64(j)})
				if i == 0 {
					_, _ = s.Report(w1)
				}
			}
		})
	}
	all.Wait()
	if got, _ := s.Report(w1); got.Running != 999 {
		t.Errorf("got %d", got.Running)
	}
}

// sockets keeps what is listened to.
type sockets struct {
	mu   sync.Mutex // guards all below
	open map[fleet.Worker]string
	log  []string
}

// Listen implements scrape.Sockets.
func (s *sockets) Listen(w fleet.Worker, name, endpoint string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log = append(s.log, fmt.Sprintf("listen %s %s %s", name, w, endpoint))
	if endpoint == "bad" {
		return errors.New("no endpoint")
	}
	s.open[w] = endpoint
	return nil
}

// Unlisten implements scrape.Sockets.
func (s *sockets) Unlisten(w fleet.Worker) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log = append(s.log, "unlisten "+w.String())
	delete(s.open, w)
}

func (s *sockets) said() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	log := s.log
	s.log = nil
	slices.Sort(log)
	return log
}

func TestLoadSocketsFollowTheWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		two := record(1, "http://w1:1")
		two.DPSize = 2
		var endpoints atomic.Pointer[map[fleet.WorkerID]map[int]string]
		endpoints.Store(&map[fleet.WorkerID]map[int]string{1: {0: "tcp://w1:1", 1: "tcp://w1:2", 7: "tcp://w1:8"}, 3: {0: "bad"}})
		workers := listOf(two, record(2, "http://w2:1"), record(3, "http://w3:1"))
		s := scrape.New(scrape.DefaultConfig(), workers, discard())
		s.SetDial(newPipeEngine(plain, cards()).dial)
		heard := &sockets{open: map[fleet.Worker]string{}}
		s.UseSockets(heard, func(v catalog.View) map[int]string { return (*endpoints.Load())[v.ID] })
		stop := start(t, s)
		step := func(what string, want ...string) {
			t.Helper()
			wait(2 * time.Second)
			if diff := cmp.Diff(want, heard.said()); diff != "" {
				t.Errorf("%s: %s", what, diff)
			}
		}
		step("at first", "listen w1 1/0 tcp://w1:1", "listen w1 1/1 tcp://w1:2", "listen w3 3/0 bad")
		s.Pushed(fleet.Worker{ID: 1, Rank: 1}, scrape.Push{At: time.Now(), Running: 5})
		if r, _ := s.Report(fleet.Worker{ID: 1, Rank: 1}); r.Running != 5 {
			t.Errorf("got %+v", r)
		}
		labelled := two
		labelled.Labels = map[string]string{"a": "b"}
		workers.set(labelled, record(2, "http://w2:1"), record(3, "http://w3:1"))
		step("after a label")
		workers.set(record(1, "http://w1:1"), record(2, "http://w2:1"))
		step("after a rank and a worker left", "unlisten 1/1", "unlisten 3/0")
		endpoints.Store(&map[fleet.WorkerID]map[int]string{1: {0: "tcp://w1:9"}})
		workers.set(record(1, "http://w1:1"), record(2, "http://w2:1"))
		step("after it moved", "listen w1 1/0 tcp://w1:9", "unlisten 1/0")
		stop()
		step("at the end", "unlisten 1/0")
	})
}
