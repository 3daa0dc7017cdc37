package selection_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/kvcache"
	"github.com/routerd/routerd/selection"
)

func TestMain(m *testing.M) {
	// fasthttp keeps one for the date, once for the process.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"))
}

// world is a service in front of a real core, with an index that a test fills.
type world struct {
	core  *core.SelectionCore
	cache *cache
	srv   *selection.Server
	addr  string
	http  *http.Client
}

// options change what a world is made of. Every field may be left out.
type options struct {
	spec   policy.Spec // the default policy's; kv-aware when empty
	stages policy.StageSource
	host   core.SelectionHost
	core   func(*core.Config)
	config func(*selection.Config)
	parts  func(*selection.Parts) // after the core and fakes were set
}

// newWorld makes one that serves until the test ends.
func newWorld(t testing.TB, o options) *world {
	t.Helper()
	cfg := core.DefaultConfig()
	seed := uint64(1)
	cfg.Seed = &seed
	if o.core != nil {
		o.core(&cfg)
	}
	if len(o.spec.Scorers) == 0 && o.spec.Policy == nil {
		o.spec = policy.Spec{Scorers: []policy.ScorerSpec{{StageSpec: policy.StageSpec{Use: "builtin:kv-aware"}}}}
	}
	p, digests, err := policy.Compile(t.Context(), o.spec, o.stages)
	if err != nil {
		t.Fatal(err)
	}
	handle, err := policy.NewHandle(policy.NewRevision("default", 1, o.spec, p, digests))
	if err != nil {
		t.Fatal(err)
	}
	w := &world{cache: &cache{held: map[fleet.Worker]map[kvcache.SequenceHash]kvcache.Tier{}}}
	if o.host.Telemetry == nil {
		o.host.Telemetry = deaf{}
	}
	w.core = core.New(cfg, o.host, policies{handle}, w.cache, slog.New(slog.DiscardHandler))
	conf, parts := selection.DefaultConfig(), selection.Parts{Core: w.core, Workers: noWorkers{}, Index: noIndex{}}
	if o.config != nil {
		o.config(&conf)
	}
	if o.parts != nil {
		o.parts(&parts)
	}
	if w.srv, err = selection.New(conf, parts, slog.New(slog.DiscardHandler), prometheus.NewRegistry()); err != nil {
		t.Fatal(err)
	}
	w.serve(t)
	return w
}

// serve makes the service answer on the loopback until the test ends.
func (w *world) serve(t testing.TB) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w.addr = ln.Addr().String()
	w.http = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16}, Timeout: 20 * time.Second}
	served := make(chan error, 1)
	go func() { served <- w.srv.Serve(ln) }()
	t.Cleanup(func() {
		w.http.CloseIdleConnections()
		if err := errors.Join(w.srv.Shutdown(context.Background()), <-served); err != nil {
			t.Error(err)
		}
		w.core.Close()
	})
}

// policies answer every rule with one handle.
type policies struct{ handle *policy.Handle }

func (s policies) Resolve(fleet.PartitionKey, string) (*policy.Handle, error) { return s.handle, nil }

// worker is a record with its decimal id as name.
func worker(id fleet.WorkerID, change ...func(*fleet.Record)) fleet.Record {
	rec := fleet.Record{ID: id, Name: id.String(), URL: fmt.Sprintf("http://127.0.0.1:%d", 20000+id%1000)}
	for _, f := range change {
		f(&rec)
	}
	return rec
}

// blockSize is that of every partition that join makes.
const blockSize = 4

// join commits the records as ready.
func (w *world) join(t testing.TB, recs ...fleet.Record) {
	t.Helper()
	w.put(t, core.Ready, recs...)
}

// put commits the records with a lifecycle.
func (w *world) put(t testing.TB, state core.Lifecycle, recs ...fleet.Record) {
	t.Helper()
	var ch core.Change
	for _, rec := range recs {
		if err := w.core.Prepare(t.Context(), rec.Partition(), blockSize); err != nil {
			t.Fatal(err)
		}
		ch.Upserts = append(ch.Upserts, core.Member{Record: rec, Lifecycle: state, BlockSize: blockSize})
	}
	if err := w.core.Commit(ch); err != nil {
		t.Fatal(err)
	}
}

// remove takes workers away.
func (w *world) remove(t testing.TB, ids ...fleet.WorkerID) {
	t.Helper()
	if err := w.core.Commit(core.Change{Removals: ids}); err != nil {
		t.Fatal(err)
	}
}

// active is the number of bookings, prefill and decode their load, over all ranks.
func (w *world) active() (active, prefill int64, decode float64) {
	for _, p := range w.core.Partitions() {
		for _, r := range p.Ranks {
			active, prefill, decode = active+r.Load.ActiveRequests, prefill+r.Load.PrefillTokens, decode+r.Load.DecodeBlocks
		}
	}
	return active, prefill, decode
}

// answer is what the service said.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// do sends a request; header holds names and values in turn.
func (w *world) do(t testing.TB, method, path, body string, header ...string) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://"+w.addr+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	resp, err := w.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(resp.Body)
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, text}
}

// post sends a body.
func (w *world) post(t testing.TB, path, body string, header ...string) answer {
	t.Helper()
	return w.do(t, "POST", path, body, header...)
}

// want checks the status.
func (a answer) want(t testing.TB, status int) answer {
	t.Helper()
	if a.status != status {
		t.Fatalf("got %d, want %d: %s", a.status, status, a.body)
	}
	return a
}

// fields is the body as an object with numbers as they are written.
func (a answer) fields(t testing.TB) map[string]any {
	t.Helper()
	var v map[string]any
	d := json.NewDecoder(bytes.NewReader(a.body))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%v: %s", err, a.body)
	}
	return v
}

// at is a value inside the body, its path written with dots, as text; "absent" where
// there is none.
func (a answer) at(t testing.TB, path string) string {
	t.Helper()
	var v any = a.fields(t)
	for key := range strings.SplitSeq(path, ".") {
		m, _ := v.(map[string]any)
		var ok bool
		if v, ok = m[key]; !ok {
			return "absent"
		}
	}
	return fmt.Sprint(v)
}

// cache is an index that a test fills: what each rank holds, and where.
type cache struct {
	mu        sync.Mutex
	held      map[fleet.Worker]map[kvcache.SequenceHash]kvcache.Tier
	sequences []kvcache.SequenceHash // of the prompt that is looked up
}

func (c *cache) Open(fleet.PartitionKey, int) (core.KvIndex, error) { return c, nil }

func (c *cache) Find(blocks []kvcache.BlockHash, workers []fleet.Worker, out []kvcache.Overlap) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sequences = kvcache.SequenceHashes(c.sequences, blocks)
	for i, w := range workers {
		out[i] = kvcache.Overlap{}
		for _, h := range c.sequences {
			tier, ok := c.held[w][h]
			if !ok {
				break
			}
			*[]*uint32{&out[i].Device, &out[i].Host, &out[i].Disk, &out[i].Shared}[tier]++
		}
	}
}

func (c *cache) Record(fleet.Worker, []kvcache.BlockHash, bool) {}

func (c *cache) Forget(fleet.Worker) {}

func (c *cache) Trusted(fleet.Worker) bool { return true }

// store says that a rank holds the blocks of tokens in a tier, where it does not hold
// them in a faster one.
func (c *cache) store(t testing.TB, w fleet.Worker, tier kvcache.Tier, tokens ...uint32) {
	t.Helper()
	blocks, err := kvcache.BlockHashes(nil, tokens, blockSize, kvcache.Seed("", ""))
	if err != nil {
		t.Fatal(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held[w] == nil {
		c.held[w] = map[kvcache.SequenceHash]kvcache.Tier{}
	}
	for _, h := range kvcache.SequenceHashes(nil, blocks) {
		if old, ok := c.held[w][h]; !ok || tier < old {
			c.held[w][h] = tier
		}
	}
}

// withSessions lets the core keep sessions for an hour.
func withSessions(c *core.Config) { c.Affinity.TTL = time.Hour }

// deaf is telemetry that nobody hears.
type deaf struct{}

func (deaf) Decided(*core.DecisionEvent) {}
func (deaf) Released(*core.ReleaseEvent) {}

// noWorkers lists none and takes none.
type noWorkers struct{}

func (noWorkers) List() []selection.Worker                     { return nil }
func (noWorkers) Find(fleet.WorkerID) (selection.Worker, bool) { return selection.Worker{}, false }

func (noWorkers) Put(context.Context, fleet.Record) (selection.Worker, error) {
	return selection.Worker{}, errors.ErrUnsupported
}

func (noWorkers) Update(context.Context, fleet.WorkerID, func(*fleet.Record) error) (selection.Worker, error) {
	return selection.Worker{}, errors.ErrUnsupported
}

func (noWorkers) Delete(context.Context, fleet.WorkerID) (selection.Worker, error) {
	return selection.Worker{}, errors.ErrUnsupported
}

// noIndex has nothing to hand out.
type noIndex struct{}

func (noIndex) Dump(w io.Writer) error {
	_, err := io.WriteString(w, "{}")
	return err
}
