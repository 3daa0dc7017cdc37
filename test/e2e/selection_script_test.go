//go:build e2e

package e2e_test

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/sim"
	"github.com/routerd/routerd/sim/simtest"
)

// holder is a worker that answers a request when it is told to, by the request's id.
type holder struct {
	url     string
	name    string
	arrived chan<- arrival

	mu   sync.Mutex // guards held
	held map[string]chan struct{}
}

// arrival is a request that has come to a holder.
type arrival struct {
	id, at string // at is worker and rank
	from   *holder
}

func startHolder(t *testing.T, name string, arrived chan<- arrival) *holder {
	t.Helper()
	h := &holder{name: name, arrived: arrived, held: map[string]chan struct{}{}}
	s := httptest.NewServer(http.HandlerFunc(h.serve))
	h.url = s.URL
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return h
}

func (h *holder) serve(w http.ResponseWriter, r *http.Request) {
	if probed(w, r) {
		return
	}
	_, _ = io.Copy(io.Discard, r.Body)
	id, free := r.Header.Get("X-Request-Id"), make(chan struct{})
	h.mu.Lock()
	h.held[id] = free
	h.mu.Unlock()
	select {
	case h.arrived <- arrival{id, h.name + "/" + r.Header.Get("X-Data-Parallel-Rank"), h}:
	case <-r.Context().Done():
		return
	}
	select {
	case <-free:
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, completion)
	case <-r.Context().Done():
	}
}

// free has a request answered.
func (h *holder) free(id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	close(h.held[id])
	delete(h.held, id)
}

// step is one request of a script, after some earlier ones have ended.
type step struct {
	ends           []uint // draws: each ends one of those under way, if there is any
	prompt         []int
	session, class string
	allow          []int // worker ids; empty for all
}

const (
	scriptSeed    = 20_261
	scriptWorkers = 4
	scriptRanks   = 2
	families      = 24
	familyBlocks  = 8
)

// family is a prompt that many begin like.
func family(n int) []int { return tokens(1000*(n+1), familyBlocks*16) }

// script draws requests with shared prefixes, some of sessions, classes and with
// allow-sets; 15 to 60 are under way at a time.
func script(n int) []step {
	r := rand.New(rand.NewPCG(scriptSeed, 1))
	steps := make([]step, n)
	for i := range steps {
		s := &steps[i]
		ends := r.IntN(2 + i/50%2*2) // more and more are under way, then fewer
		if i < 40 {
			ends = 0
		}
		for range ends {
			s.ends = append(s.ends, uint(r.Uint32()))
		}
		shared := family(r.IntN(families))
		s.prompt = append(append(s.prompt, shared[:16*(1+r.IntN(familyBlocks))]...), tokens(1_000_000+1000*i, r.IntN(200))...)
		if r.IntN(100) < 40 {
			s.session = fmt.Sprint("s", r.IntN(30))
		}
		if r.IntN(100) < 30 {
			s.class = []string{"bulk", "other"}[r.IntN(2)]
		}
		if r.IntN(100) < 25 {
			s.allow = append(s.allow, 1+r.IntN(scriptWorkers), 1+r.IntN(scriptWorkers))
		}
	}
	return steps
}

// surface is one of the ways in.
type surface interface {
	// ask makes a request and says at which worker and rank it is held, or that it
	// was refused.
	ask(t *testing.T, id string, s step) (where string)
	// end has a request answered and waits until its booking is gone.
	end(t *testing.T, id string, under int)
}

// play plays a script and returns where its requests went, and the loads at its end,
// before and after the last requests end.
func play(t *testing.T, s *service, on surface, steps []step) (where []string, loads []slotLoad) {
	t.Helper()
	var open []string
	end := func(i int) {
		id := open[i]
		open = append(open[:i], open[i+1:]...)
		on.end(t, id, len(open))
	}
	for i, st := range steps {
		for _, draw := range st.ends {
			if len(open) > 0 {
				end(int(draw % uint(len(open))))
			}
		}
		id := fmt.Sprint("r", i)
		at := on.ask(t, id, st)
		if where = append(where, at); at != "refused" {
			open = append(open, id)
		}
	}
	loads, _ = s.loads(t)
	for len(open) > 0 {
		end(0)
	}
	return where, loads
}

// byFrontend asks for completions, which the holders hold back.
type byFrontend struct {
	s       *service
	clients *crowd
	arrived chan arrival
	open    map[string]*pending
	at      map[string]*holder
}

func (f *byFrontend) ask(t *testing.T, id string, s step) string {
	t.Helper()
	header := []string{"x-request-id", id}
	for name, v := range map[string]string{session: s.session, "x-routerd-class": s.class, "x-routerd-allow": strings.Trim(strings.ReplaceAll(fmt.Sprint(s.allow), " ", ","), "[]")} {
		if v != "" {
			header = append(header, name, v)
		}
	}
	p := f.clients.send(t, s.prompt, header...)
	select {
	case a := <-f.arrived:
		if a.id != id {
			t.Fatalf("request %s came to %s in place of %s", a.id, a.at, id)
		}
		f.open[id], f.at[id] = p, a.from
		return a.at
	case <-p.done:
		if p.err != nil || p.reply.status != http.StatusBadRequest {
			t.Fatalf("request %s: %d %v %s", id, p.reply.status, p.err, p.reply.body)
		}
		return "refused"
	case <-time.After(time.Minute):
		t.Fatalf("request %s came nowhere", id)
		return ""
	}
}

func (f *byFrontend) end(t *testing.T, id string, under int) {
	t.Helper()
	f.at[id].free(id)
	f.open[id].served(t)
	delete(f.open, id)
	eventually(t, soon, func() error {
		if got := f.s.active(t); got != under {
			return fmt.Errorf("%d requests are under way, want %d", got, under)
		}
		return nil
	})
}

// byService selects and books, and forwards nothing.
type byService struct{ s *service }

func (b byService) ask(t *testing.T, id string, s step) string {
	t.Helper()
	body := wants(s.prompt, "selection_id", id)
	if s.session != "" {
		body["session_id"] = s.session
	}
	if len(s.allow) > 0 {
		body["allowed_worker_ids"] = s.allow
	}
	var header []string
	if s.class != "" {
		header = append(header, "x-routerd-class", s.class)
	}
	a, err := b.s.try(t.Context(), "POST", "/select_and_reserve", body, header...)
	if err != nil {
		t.Fatal(err)
	}
	if a.status == http.StatusBadRequest {
		return "refused"
	}
	if a.status != http.StatusOK {
		t.Fatalf("request %s: %d %s", id, a.status, a.body)
	}
	got := read[selected](t, a)
	return fmt.Sprintf("w%d/%d", got.Worker, got.Rank)
}

func (b byService) end(t *testing.T, id string, _ int) {
	t.Helper()
	b.s.frees(t, id)
}

// One seeded script goes to the same workers and ranks and leaves the same loads,
// whichever surface is asked: both ask the same core.
func TestOneScriptGoesTheSameWayThroughBothSurfaces(t *testing.T) {
	const requests = 1000
	var static strings.Builder
	arrived := make(chan arrival)
	blocks := 0
	for i := range scriptWorkers {
		h := startHolder(t, fmt.Sprint("w", i+1), arrived)
		// Its caches are those of an engine that the test fills beforehand.
		e := simtest.Start(t, func(c *sim.Config) { c.Name, c.Model, c.Ranks = h.name, "m", scriptRanks })
		for rank := range scriptRanks {
			for n := i*scriptRanks + rank; n < families; n += 3 {
				fills(t, e, rank, family(n)[:16*(n%familyBlocks+1)])
				blocks += n%familyBlocks + 1
			}
		}
		fmt.Fprintf(&static, "  - {id: %d, name: %s, url: %q, model: m, dp_size: %d, kv_events: %s, replay: %s}\n",
			i+1, h.name, h.url, scriptRanks, bodyOf(t, e.EventEndpoints()), bodyOf(t, e.ReplayEndpoints()))
	}
	config := fmt.Sprintf("models: {m: {block_size: 16, tokenize: \"off\"}}\nrouting: {seed: %d, rules: [{class: bulk, policy: drawn}]}\n"+
		"policies: {drawn: {scorers: [{use: \"builtin:kv-aware\"}], picker: {use: \"builtin:softmax\", config: {temperature: 0.5}}}}\n"+
		"workers:\n  static:\n%s", scriptSeed, static.String())
	front, plane := startService(t, config), startService(t, config)
	for _, s := range []*service{front, plane} {
		eventually(t, soon, func() error {
			got := 0
			for _, r := range s.partition("m").Ranks {
				got += len(r.KV.Hashes["device"])
			}
			if got != blocks {
				return fmt.Errorf("%d blocks are known, want %d", got, blocks)
			}
			return nil
		})
	}

	steps := script(requests)
	began := time.Now()
	wantWhere, wantLoads := play(t, front, &byFrontend{front, newCrowd(t, front.router), arrived, map[string]*pending{}, map[string]*holder{}}, steps)
	t.Logf("%d requests through the frontend took %s", requests, time.Since(began))
	began = time.Now()
	where, loads := play(t, plane, byService{plane}, steps)
	t.Logf("%d requests through the service took %s", requests, time.Since(began))

	if diff := cmp.Diff(wantWhere, where); diff != "" {
		t.Errorf("where requests went (-frontend +service)\n%s", diff)
	}
	if diff := cmp.Diff(wantLoads, loads); diff != "" {
		t.Errorf("loads at the end (-frontend +service)\n%s", diff)
	}
	counts, held := map[string]int{}, 0
	for _, at := range where {
		counts[at]++
	}
	for _, l := range loads {
		held += l.Active
	}
	if t.Logf("where they went: %v; %d under way at the end", counts, held); len(counts) < scriptWorkers*scriptRanks || held < 10 {
		t.Errorf("requests went to %v, %d were under way at the end: too little to choose", counts, held)
	}
	for _, s := range []*service{front, plane} {
		s.quiet("m")
		s.unused(t)
	}
}

// fills has a rank of an engine compute a prompt.
func fills(t *testing.T, e *sim.Engine, rank int, prompt []int) {
	t.Helper()
	raw, err := json.Marshal(map[string]any{"model": "m", "prompt": prompt, "max_tokens": 1})
	if err != nil {
		t.Fatal(err)
	}
	header := http.Header{"Content-Type": {"application/json"}, "X-Data-Parallel-Rank": {strconv.Itoa(rank)}}
	if a := exchange(t, "POST", e.URL()+"/v1/completions", header, raw); a.status != http.StatusOK {
		t.Fatalf("status %d: %s", a.status, a.body)
	}
}
