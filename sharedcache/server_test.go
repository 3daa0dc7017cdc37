package sharedcache_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/internal/testkit"
	"github.com/routerd/routerd/kvcache"
	"github.com/routerd/routerd/sharedcache"
)

// server is a shared cache that holds the first block of everything. It keeps
// its address over kills.
type server struct {
	address string
	http    *http.Server
	ended   chan struct{}
	asked   atomic.Int64
	hang    atomic.Bool
}

func (s *server) start(t testing.TB) {
	t.Helper()
	if s.address == "" {
		s.address = "127.0.0.1:0"
	}
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", s.address)
	if err != nil {
		t.Fatal(err)
	}
	s.address, s.ended = ln.Addr().String(), make(chan struct{})
	s.http = &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.asked.Add(1)
		_, _ = io.Copy(io.Discard, r.Body) // else the server does not see its client go
		if s.hang.Load() {
			<-r.Context().Done()
			return
		}
		_, _ = w.Write([]byte(`{"ranges":[[0,1]]}`))
	})}
	go func() {
		defer close(s.ended)
		_ = s.http.Serve(ln)
	}()
}

// kill ends it with all its connections.
func (s *server) kill() {
	_ = s.http.Close()
	<-s.ended
}

// calls are callers of Hits that go on until they are stopped.
type calls struct {
	stop             context.CancelFunc
	all              sync.WaitGroup
	ok, away, failed atomic.Int64
	slowest          atomic.Int64 // nanoseconds of a call
}

func startCalls(r *rig, n int) *calls {
	ctx, cancel := context.WithCancel(context.Background())
	c := &calls{stop: cancel}
	for range n {
		c.all.Go(func() {
			for ctx.Err() == nil {
				begun := time.Now()
				// Not ctx: being stopped must not count as a caller that gave up.
				held, err := r.Hits(context.Background(), key, hashes(64), nil)
				c.count(held, err)
				if took := int64(time.Since(begun)); took > c.slowest.Load() {
					c.slowest.Store(took)
				}
				if err != nil {
					select {
					case <-time.After(time.Millisecond):
					case <-ctx.Done():
					}
				}
			}
		})
	}
	return c
}

func (c *calls) count(held []kvcache.BlockRange, err error) {
	switch {
	case errors.Is(err, sharedcache.ErrAway):
		c.away.Add(1)
	case err == nil && cmp.Equal([]kvcache.BlockRange{{Start: 0, End: 1}}, held):
		c.ok.Add(1)
	default:
		c.failed.Add(1)
	}
}

// TestAKilledServerCostsEachCallerOneDeadline has callers who never pause when
// the server goes: each may be in a call then, and no call after that waits.
func TestAKilledServerCostsEachCallerOneDeadline(t *testing.T) {
	const deadline, callers = 100 * time.Millisecond, 8
	for _, how := range []string{"killed", "hanging"} {
		t.Run(how, func(t *testing.T) {
			s := &server{}
			s.start(t)
			defer func() { s.kill() }()
			transport := &http.Transport{MaxIdleConnsPerHost: callers}
			defer transport.CloseIdleConnections()
			r := newRig(t, "http://"+s.address, deadline, over{&http.Client{Transport: transport}})
			defer r.run(t)()
			c := startCalls(r, callers)
			defer c.all.Wait()
			defer c.stop()
			for round := range int64(2) {
				had := c.ok.Load()
				testkit.Until(t, "hits come", func() bool { return c.ok.Load() > had+100 })
				was, asked, failed := c.away.Load(), s.asked.Load(), c.failed.Load()
				if how == "killed" {
					s.kill()
				} else {
					s.hang.Store(true)
				}
				// Long enough for several questions of Run.
				testkit.Until(t, "calls go on without", func() bool { return c.away.Load() > was+1000 })
				if n := c.failed.Load() - failed; n < 1 || n > callers {
					t.Errorf("round %d: %d of %d callers waited or were refused", round, n, callers)
				}
				if n := s.asked.Load() - asked; how == "hanging" && n > 40 {
					t.Errorf("round %d: %d requests to a server that hangs", round, n)
				}
				if how == "killed" {
					s.start(t)
				} else {
					s.hang.Store(false)
				}
			}
			had := c.ok.Load()
			testkit.Until(t, "hits come again", func() bool { return c.ok.Load() > had+100 })
			c.stop()
			c.all.Wait()
			if slowest := time.Duration(c.slowest.Load()); slowest > 10*deadline {
				t.Errorf("the slowest call took %v with a deadline of %v", slowest, deadline)
			}
			t.Logf("%d with an answer, %d away, %d failed, the slowest took %v", c.ok.Load(), c.away.Load(), c.failed.Load(), time.Duration(c.slowest.Load()))
		})
	}
}

// BenchmarkHits is a question over a kept connection to a server of this
// process, whose share is in it.
func BenchmarkHits(b *testing.B) {
	s := &server{}
	s.start(b)
	defer s.kill()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	for _, n := range []int{16, 512, 8192} {
		b.Run(fmt.Sprintf("blocks=%d", n), func(b *testing.B) {
			r := newRig(b, "http://"+s.address, time.Second, over{&http.Client{Transport: transport}})
			blocks, out := hashes(n), make([]kvcache.BlockRange, 0, 8)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := r.Hits(b.Context(), key, blocks, out); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
