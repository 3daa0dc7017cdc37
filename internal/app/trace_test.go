package app_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/frontend"
	"github.com/routerd/routerd/host"
	"github.com/routerd/routerd/host/store"
	"github.com/routerd/routerd/host/wasmtest"
	"github.com/routerd/routerd/kvcache"
	"github.com/routerd/routerd/prompt"
	"github.com/routerd/routerd/upstream"
)

// road records which files of this repository a request is in, at the moments
// when it touches something that the test holds.
type road struct {
	mu    sync.Mutex
	spots []spot
	core  *core.SelectionCore
}

type spot struct {
	where string
	files []string // outermost first
	live  int      // reservations
}

const root = "github.com/routerd/routerd/"

// mark notes the caller's stack.
func (r *road) mark(where string) {
	pcs := make([]uintptr, 100)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs)])
	var files []string
	for {
		f, more := frames.Next()
		if pkg, ok := strings.CutPrefix(f.Function, root); ok && !strings.HasSuffix(f.File, "_test.go") {
			dir, _, _ := strings.Cut(strings.ReplaceAll(pkg, "(*", "."), ".")
			files = append(files, dir+"/"+filepath.Base(f.File))
		}
		if !more {
			break
		}
	}
	slices.Reverse(files)
	r.note(spot{where, slices.Compact(files), r.core.Reservations()})
}

func (r *road) note(s spot) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.spots = append(r.spots, s)
}

func (r *road) spot(t *testing.T, where string) spot {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.spots {
		if s.where == where {
			return s
		}
	}
	t.Fatalf("the request never came by %q", where)
	return spot{}
}

// The index marks its look-ups, and what is recorded.
func (r *road) Open(fleet.PartitionKey, int) (core.KvIndex, error) { return r, nil }

func (r *road) Find(_ []kvcache.BlockHash, _ []fleet.Worker, out []kvcache.Overlap) {
	clear(out)
	r.mark("index")
}

func (r *road) Record(fleet.Worker, []kvcache.BlockHash, bool) { r.mark("record") }

func (r *road) Forget(fleet.Worker) {}

func (r *road) Trusted(fleet.Worker) bool { return true }

// Decided and Released: the core's telemetry.
func (r *road) Decided(*core.DecisionEvent) { r.mark("decided") }

func (r *road) Released(*core.ReleaseEvent) { r.mark("released") }

// busy is a scorer that works for some hundred thousand fuel before it answers.
func busy() []byte {
	const laps, count = 60_000, 1 // count is the first local of ColumnTypes
	return wasmtest.Guest{
		Extra: `,"limits":{"fuel_base":2000000,"fuel_per_row":1500}`,
		Score: wasmtest.Cat(
			wasmtest.I32(laps), wasmtest.Set(count),
			wasmtest.Loop(wasmtest.Get(count), wasmtest.I32(1), wasmtest.Op(wasmtest.I32Sub), wasmtest.Tee(count), wasmtest.BrIf(0)),
			wasmtest.Column(0),
		),
		ScoreTypes: wasmtest.ColumnTypes,
	}.Bytes()
}

// guest looks at the goroutines until one of them is in a guest, in none of whose
// files is a reservation written: nothing was booked when it has been seen.
func (r *road) guest(stop <-chan struct{}) {
	all := make([]byte, 1<<20)
	for {
		select {
		case <-stop:
			return
		default:
		}
		for stack := range strings.SplitSeq(string(all[:runtime.Stack(all, true)]), "\n\n") {
			if !strings.Contains(stack, "host.(*stage).") || !strings.Contains(stack, "frontend.(*Server)") {
				continue
			}
			live := r.core.Reservations()
			if live == 0 {
				r.note(spot{"guest", filesOf(stack), live})
				return
			}
		}
	}
}

// filesOf are the files of a printed stack, outermost first.
func filesOf(stack string) []string {
	var files []string
	for _, m := range regexp.MustCompile(`(?m)^`+root+`([a-z/]+)\.[^\n]*\n\t[^\n]*/([a-z_]+\.go):`).FindAllStringSubmatch(stack, -1) {
		files = append(files, m[1]+"/"+m[2])
	}
	slices.Reverse(files)
	return slices.Compact(files)
}

// The walk of docs/guide/trace-a-request.md is the path that a request takes.
func TestTheGuideTracesARequest(t *testing.T) {
	r := &road{}
	log := slog.New(slog.DiscardHandler)
	policies := busyPolicies(t, log)
	cfg := core.DefaultConfig()
	cfg.Queue.Classes[0].Busy.ActiveRequests = 1
	r.core = core.New(cfg, core.SelectionHost{Telemetry: r}, policies, r, log)
	var atWorker, inQueue string
	var url string
	var once sync.Once
	var second sync.WaitGroup
	worker := serveWorker(t, func() {
		r.mark("worker")
		all := make([]byte, 1<<20)
		atWorker = string(all[:runtime.Stack(all, true)])
		once.Do(func() { // the worker takes one at a time: another request waits now
			second.Go(func() { completeOnce(t, url) })
			r.untilQueued(t)
			inQueue = string(all[:runtime.Stack(all, true)])
		})
	})
	rec, err := fleet.Record{NoHealthCheck: true, Name: "w1", URL: worker, Model: "m"}.Normalised()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.core.Prepare(t.Context(), rec.Partition(), 4); err != nil {
		t.Fatal(err)
	}
	if err := r.core.Commit(core.Change{Upserts: []core.Member{{Record: rec, BlockSize: 4, Lifecycle: core.Ready}}}); err != nil {
		t.Fatal(err)
	}
	url = serveFrontendOf(t, r.core, log)
	completeOnce(t, url)
	second.Wait()
	r.untilInGuest(t, url)

	hops := guideHops(t)
	t.Logf("the guide walks %v", hops)
	passes := func(where string, want ...string) {
		t.Helper()
		got := r.spot(t, where).files
		at := 0
		for _, f := range got {
			if at < len(want) && f == want[at] {
				at++
			}
		}
		if at < len(want) {
			t.Errorf("at %s the request is in\n%v\nwant in this order\n%v", where, got, want)
		}
		for _, f := range want {
			if !slices.Contains(hops, f) {
				t.Errorf("the guide does not name %s", f)
			}
		}
	}
	passes("index", "frontend/completions.go", "frontend/route.go", "core/select.go", "core/partition.go")
	passes("guest", "frontend/completions.go", "frontend/route.go", "core/select.go", "core/policy/pipeline.go", "host/policy.go")
	if before, after := r.spot(t, "guest").live, r.spot(t, "decided").live; before != 0 || after != 1 {
		t.Errorf("core/reserve/book.go has %d reservations while the policy decides and %d when it has, want 0 and 1", before, after)
	}
	if !strings.Contains(inQueue, "core/admission.go") {
		t.Error("core/admission.go is in no stack while core/queue/queue.go holds a request")
	}
	if !strings.Contains(atWorker, "frontend/forward.go") {
		t.Error("frontend/forward.go is in no stack while the worker has the request")
	}
	r.untilIdle(t)
	r.spot(t, "released")
	order := []string{"frontend/completions.go", "frontend/route.go", "core/select.go", "core/queue/queue.go", "core/partition.go", "core/policy/pipeline.go", "host/policy.go", "core/reserve/book.go", "frontend/forward.go"}
	if !slices.Equal(hops, order) {
		t.Errorf("the guide walks %v, the design %v", hops, order)
	}
}

// completeOnce sends one completion.
func completeOnce(t *testing.T, url string) {
	t.Helper()
	resp, err := client.Post(url+"/v1/completions", "application/json", strings.NewReader(`{"model":"m","prompt":[1,2,3,4,5,6,7,8]}`))
	if err != nil {
		t.Fatal(err)
	}
	if answer, err := io.ReadAll(resp.Body); err != nil || resp.Body.Close() != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("status %d: %s %v", resp.StatusCode, answer, err)
	}
}

// untilInGuest sends completions, one after the other, until one was seen while
// the policy decided.
func (r *road) untilInGuest(t *testing.T, url string) {
	t.Helper()
	stop, seen := make(chan struct{}), make(chan struct{})
	go func() { defer close(seen); r.guest(stop) }()
	deadline := time.After(30 * time.Second)
	for {
		r.untilIdle(t)
		select {
		case <-seen:
			return
		case <-deadline:
			close(stop)
			<-seen
			t.Fatal("no request was seen while its policy decided")
		default:
			completeOnce(t, url)
		}
	}
}

// untilQueued waits until a request waits.
func (r *road) untilQueued(t *testing.T) {
	deadline := time.After(10 * time.Second)
	for {
		for _, q := range r.core.Partitions()[0].Queue {
			if q.Requests > 0 {
				return
			}
		}
		select {
		case <-deadline:
			t.Error("no request waits while the only worker is busy")
			return
		case <-time.After(time.Millisecond):
		}
	}
}

// untilIdle waits until nothing is booked.
func (r *road) untilIdle(t *testing.T) {
	t.Helper()
	for deadline := time.After(10 * time.Second); r.core.Reservations() != 0; {
		select {
		case <-deadline:
			t.Fatal("the reservation outlived the request")
		case <-time.After(time.Millisecond):
		}
	}
}

// guideHops are the files in bold of the guide's numbered walk.
func guideHops(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("../../docs/guide/trace-a-request.md")
	if err != nil {
		t.Fatal(err)
	}
	var hops []string
	for _, m := range regexp.MustCompile("\\*\\*`([a-z/]+\\.go)`\\*\\*").FindAllStringSubmatch(string(text), -1) {
		if _, err := os.Stat("../../" + m[1]); err != nil {
			t.Errorf("the guide names %s: %v", m[1], err)
		}
		hops = append(hops, m[1])
	}
	return hops
}

// busyPolicies has the busy module as its default policy.
func busyPolicies(t *testing.T, log *slog.Logger) *host.PolicySource {
	t.Helper()
	rt, err := host.New(host.DefaultConfig(), log, prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = rt.Close() })
	modules, err := store.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := modules.Put("busy", strings.NewReader(string(busy())), ""); err != nil {
		t.Fatal(err)
	}
	spec, err := policy.ParseSpec([]byte(`{"scorers":[{"use":"module:busy"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	ps, err := host.OpenPolicySource(t.Context(), rt, modules, host.PolicyConfig{
		Dir: t.TempDir(), Default: "busy", Seeds: map[string]policy.Spec{"busy": spec},
	}, log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ps.Close() })
	return ps
}

// serveWorker is an engine without /tokenize; before an answer seen is called.
func serveWorker(t *testing.T, seen func()) (url string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/tokenize" {
			http.NotFound(w, r)
			return
		}
		seen()
		_, _ = fmt.Fprint(w, `{"choices":[{"text":"x"}],"usage":{"prompt_tokens":8,"completion_tokens":1}}`)
	})}
	served := make(chan struct{})
	go func() { defer close(served); _ = srv.Serve(ln) }()
	t.Cleanup(func() { _ = srv.Close(); <-served })
	return "http://" + ln.Addr().String()
}

func serveFrontendOf(t *testing.T, c *core.SelectionCore, log *slog.Logger) (url string) {
	t.Helper()
	up := upstream.New(upstream.DefaultConfig())
	tok, err := prompt.New(prompt.DefaultConfig(), c, up, prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	s, err := frontend.New(frontend.DefaultConfig(), c, tok, up, func(string) prompt.Mode { return prompt.ModeOff }, log, prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(ln) }()
	t.Cleanup(func() {
		if err := s.Drain(context.Background()); err != nil {
			t.Error(err)
		}
		<-served
		tok.Close()
		up.Close()
	})
	return "http://" + ln.Addr().String()
}
