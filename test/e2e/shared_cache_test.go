//go:build e2e

package e2e_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// sharedBlocks is how many blocks of every prompt the shared cache holds.
const sharedBlocks = 4

// cacheServer is an external shared cache. It keeps its address over kills, and
// can be made to hang.
type cacheServer struct {
	address string
	server  *http.Server
	ended   chan struct{}
	hang    atomic.Bool
}

func startCache(t *testing.T) *cacheServer {
	t.Helper()
	s := &cacheServer{address: "127.0.0.1:0"}
	s.start(t)
	t.Cleanup(s.kill)
	return s
}

func (s *cacheServer) start(t *testing.T) {
	t.Helper()
	ln, err := net.Listen("tcp", s.address)
	if err != nil {
		t.Fatal(err)
	}
	s.address, s.ended = ln.Addr().String(), make(chan struct{})
	s.server = &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(s.hits)}
	server, ended := s.server, s.ended
	go func() {
		defer close(ended)
		_ = server.Serve(ln)
	}()
}

// kill ends it with all its connections.
func (s *cacheServer) kill() {
	_ = s.server.Close()
	<-s.ended
}

func (s *cacheServer) hits(w http.ResponseWriter, r *http.Request) {
	raw, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	if s.hang.Load() {
		<-r.Context().Done()
		return
	}
	var asked struct {
		Hashes []uint64 `json:"hashes"`
	}
	if err := json.Unmarshal(raw, &asked); err != nil || r.Method != http.MethodPost || r.URL.Path != "/hits" {
		http.Error(w, "not a question", http.StatusBadRequest)
		return
	}
	held := min(sharedBlocks, len(asked.Hashes))
	_, _ = fmt.Fprintf(w, `{"ranges":[[0,%d]]}`, held)
}

// sharedOf asks for a completion, which must be answered, and returns what the
// decision knew of the shared cache, and how long the answer took.
func sharedOf(t *testing.T, r *router, c *crowd, prompt any) (blocks float64, a reply, took time.Duration) {
	t.Helper()
	began := time.Now()
	a, err := c.complete(t.Context(), prompt)
	if err != nil {
		t.Fatal(err)
	}
	took = time.Since(began)
	servedBy(t, a)
	d := r.decision(a.header)
	if len(d.Rows) == 0 {
		t.Fatal("the decision has no rows")
	}
	for _, row := range d.Rows {
		if got := row.Columns["kv.overlap_shared"]; got != d.Rows[0].Columns["kv.overlap_shared"] {
			t.Errorf("the workers differ in what the shared cache has: %+v", d.Rows)
		}
	}
	return d.Rows[0].Columns["kv.overlap_shared"], a, took
}

// A shared cache that is killed, comes again and hangs costs no request, and one
// deadline at most.
func TestSharedCacheComesAndGoes(t *testing.T) {
	const deadline = 300 * time.Millisecond
	s := startCache(t)
	list := []*desk{openDesk(t), openDesk(t)}
	base := untold + desks(1, "m", list...)
	r := startRouter(t, base+fmt.Sprintf("shared_cache: {url: \"http://%s\", deadline: %s}\n", s.address, deadline))
	c := newCrowd(t, r)
	prompt := tokens(1, 160)
	blocks, a, _ := sharedOf(t, r, c, prompt)
	if blocks != sharedBlocks {
		t.Errorf("the decision shows %v shared blocks, want %d", blocks, sharedBlocks)
	}
	code, out, said := r.cli("decisions", a.header.Get("x-routerd-decision"))
	if code != 0 || !strings.Contains(out, "kv.overlap_shared") {
		t.Errorf("decisions: exit code %d, want kv.overlap_shared in\n%s%s", code, out, said)
	}

	l := startLoad(r, 4, 0)
	gone := func(what string) {
		l.reach(t, 200)
		slow := 0
		for range 50 {
			if _, _, took := sharedOf(t, r, c, prompt); took >= deadline {
				slow++
			}
		}
		t.Logf("%s: %d of 50 requests of one client took a deadline", what, slow)
		if slow > 1 {
			t.Errorf("%s: %d of 50 requests took a deadline, want at most one", what, slow)
		}
		if blocks, _, _ := sharedOf(t, r, c, prompt); blocks != 0 {
			t.Errorf("%s: %v shared blocks, want none", what, blocks)
		}
		if m := r.metrics(); sum(m, "routerd_shared_cache_away") != 1 || sum(m, "routerd_shared_cache_errors_total") == 0 {
			t.Errorf("%s: away %v, errors %v", what, sum(m, "routerd_shared_cache_away"), sum(m, "routerd_shared_cache_errors_total"))
		}
	}
	back := func(what string) {
		began := time.Now()
		eventually(t, 3*soon, func() error {
			if blocks, _, _ := sharedOf(t, r, c, prompt); blocks != sharedBlocks {
				return fmt.Errorf("%s: %v shared blocks, want %d again", what, blocks, sharedBlocks)
			}
			return nil
		})
		t.Logf("%s: asked again after %s", what, time.Since(began))
	}
	s.kill()
	gone("killed")
	s.start(t)
	back("started again")
	s.hang.Store(true)
	gone("hanging")
	s.hang.Store(false)
	back("answering again")

	r.rewrite(base)
	r.must("POST", "/v1/config/reload", nil, nil)
	if blocks, _, _ := sharedOf(t, r, c, prompt); blocks != 0 {
		t.Errorf("switched off: %v shared blocks, want none", blocks)
	}
	shots := l.end()
	noneFailed(t, shots)
	_, p99 := percentiles(shots)
	t.Logf("%d requests of 4 others, p99 %s", len(shots), p99)
	r.quiet("m")
}
