package app_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/catalog/adapters"
	"github.com/routerd/routerd/internal/config"
	"github.com/routerd/routerd/internal/testkit"
	"github.com/routerd/routerd/sim"
)

// waitingKeys are liveKeys of the queue, of sessions, adapters and the shared
// cache.
func waitingKeys() map[string]func(*testing.T) {
	return map[string]func(*testing.T){
		"routing.rules[].class":                    testRuleOfAClass,
		"queue.refresh_after":                      testRefreshAfter,
		"queue.classes.NAME.weight":                testWeight,
		"queue.classes.NAME.order":                 testOrder,
		"queue.classes.NAME.busy.prefill_tokens":   testBusy("prefill_tokens", func(b *config.QueueBusy) { b.PrefillTokens = 1 }),
		"queue.classes.NAME.busy.prefill_fraction": testBusy("prefill_fraction", func(b *config.QueueBusy) { b.PrefillFraction = 1e-7 }),
		"queue.classes.NAME.busy.active_requests":  testBusy("active_requests", func(b *config.QueueBusy) { b.ActiveRequests = 1 }),
		"queue.classes.NAME.limits.requests":       testLimit("requests", func(l *config.QueueLimits) { l.Requests = 0 }),
		"queue.classes.NAME.limits.tokens":         testLimit("tokens", func(l *config.QueueLimits) { l.Tokens = 0 }),
		"queue.classes.NAME.limits.cached_tokens":  testLimit("cached_tokens", func(l *config.QueueLimits) { l.CachedTokens = 0 }),
		"queue.classes.NAME.timeout":               testQueueTimeout,
		"queue.overload.prefill_tokens":            testOverload("prefill_tokens", func(o *config.Overload) { o.PrefillTokens = 1 }),
		"queue.overload.prefill_fraction":          testOverload("prefill_fraction", func(o *config.Overload) { o.PrefillFraction = 1e-7 }),
		"queue.overload.kv_fraction":               testOverload("kv_fraction", func(o *config.Overload) { o.KVFraction = 1 }),
		"affinity.mode":                            testAffinityMode,
		"lora.manage[].name":                       testManagedAdapters,
		"lora.manage[].model":                      testManagedAdapters,
		"lora.manage[].path":                       testManagedAdapters,
		"lora.slots":                               testAdapterSlots,
		"shared_cache.url":                         testSharedCacheURL,
		"shared_cache.deadline":                    testSharedCacheDeadline,
	}
}

const defaultKey = "queue.classes.default."

// Nobody may wait, so that a busy worker is seen at once.
func testBusy(key string, set func(*config.QueueBusy)) func(*testing.T) {
	return func(t *testing.T) {
		r, p := waitingRouter(t, func(c *config.QueueClass) { c.Limits.Requests = 0 })
		send(t, r.App, "first", "", 4)
		p.next(t)
		before := r.probe(t)
		r.change(t, defaultClass(func(c *config.QueueClass) { set(&c.Busy) }), defaultKey+"busy."+key)
		after := r.probe(t)
		statuses(t, [2]int{http.StatusOK, http.StatusTooManyRequests}, before.status, after.status)
		if after.Error.Param != "queue_full" || after.Error.Code != "overloaded" {
			t.Errorf("got %+v", after)
		}
		r.change(t, defaultClass(func(c *config.QueueClass) { c.Busy = config.QueueBusy{} }), defaultKey+"busy."+key)
		if again := r.probe(t); again.status != http.StatusOK {
			t.Errorf("off again: %+v", again)
		}
	}
}

func testLimit(kind string, set func(*config.QueueLimits)) func(*testing.T) {
	return func(t *testing.T) {
		r, p := waitingRouter(t, busyAt(1, 20*time.Millisecond))
		send(t, r.App, "first", "", 4)
		p.next(t)
		before := r.probe(t)
		r.change(t, defaultClass(func(c *config.QueueClass) { set(&c.Limits) }), defaultKey+"limits."+kind)
		after := r.probe(t)
		if diff := cmp.Diff([2]string{"queue_timeout", "queue_full"}, [2]string{before.Error.Param, after.Error.Param}); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
		if want := "0 " + kind + " wait, at most 0 may"; !strings.Contains(after.Error.Message, want) {
			t.Errorf("the message lacks %q: %s", want, after.Error.Message)
		}
	}
}

func testQueueTimeout(t *testing.T) {
	r, p := waitingRouter(t, busyAt(1, time.Minute))
	send(t, r.App, "first", "", 4)
	p.next(t)
	r.change(t, defaultClass(func(c *config.QueueClass) { c.Timeout = config.Duration(20 * time.Millisecond) }), defaultKey+"timeout")
	if a := r.probe(t); a.status != http.StatusTooManyRequests || a.Error.Param != "queue_timeout" {
		t.Errorf("%+v; the start's timeout is 1m", a)
	}
}

// served lets one request after the other go and tells whose came to the worker.
func served(t *testing.T, p *patient, n int) (order []string) {
	t.Helper()
	for range n {
		p.let <- struct{}{}
		order = append(order, p.next(t))
	}
	return order
}

func testWeight(t *testing.T) {
	weights := func(a, b int) func(*config.Config) {
		return func(c *config.Config) {
			c.Queue.Classes = maps.Clone(c.Queue.Classes)
			for name, weight := range map[string]int{"a": a, "b": b} {
				class := c.Queue.Classes["default"]
				class.Weight = weight
				c.Queue.Classes[name] = class
			}
		}
	}
	r, p := waitingRouter(t, busyAt(1, time.Minute), weights(9, 1))
	send(t, r.App, "first", "", 4)
	p.next(t)
	for i := range 8 {
		send(t, r.App, string("ab"[i%2]), string("ab"[i%2]), 4)
		r.untilWaiting(t, i+1)
	}
	r.change(t, weights(1, 9), "queue.classes.a.weight", "queue.classes.b.weight")
	order := served(t, p, 8)
	if diff := cmp.Diff([]string{"b", "b", "b"}, order[:3]); diff != "" {
		t.Errorf("the first three of %v (-want +got)\n%s", order, diff)
	}
}

func testOrder(t *testing.T) {
	r, p := waitingRouter(t, busyAt(1, time.Minute))
	send(t, r.App, "first", "", 4)
	p.next(t)
	for i, words := range []int{400, 200, 4} {
		send(t, r.App, fmt.Sprint(words), "", words)
		r.untilWaiting(t, i+1)
	}
	r.change(t, defaultClass(func(c *config.QueueClass) { c.Order = "wspt" }), defaultKey+"order")
	if diff := cmp.Diff([]string{"4", "200", "400"}, served(t, p, 3)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// What the engine caches while a request waits counts when it goes.
func testRefreshAfter(t *testing.T) {
	e := engine(t, "e1", func(c *sim.Config) { c.DecodePerToken = 5 * time.Millisecond })
	cfg := settings(t, e)
	defaultClass(busyAt(1, time.Minute))(&cfg)
	r := startReloadable(t, cfg)
	waitForWorkers(t, r.App)
	cached := func(text string) float64 {
		t.Helper()
		held, release := context.WithCancel(t.Context())
		defer release()
		body := `{"model":"m","prompt":"held","max_tokens":100000,"ignore_eos":true,"stream":true}`
		req, err := http.NewRequestWithContext(held, http.MethodPost, r.FrontendURL()+"/v1/completions", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		stream, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = stream.Body.Close() }()
		long := fmt.Sprintf(`{"model":"m","prompt":%q,"max_tokens":1}`, strings.Repeat(text+" ", 64))
		answered := make(chan string, 1)
		go func() {
			resp, err := client.Post(r.FrontendURL()+"/v1/completions", "application/json", strings.NewReader(long))
			if err != nil {
				answered <- ""
				return
			}
			_ = resp.Body.Close()
			answered <- resp.Header.Get("x-routerd-decision")
		}()
		r.untilWaiting(t, 1)
		known := blocksKnown(t, r)
		resp, err := client.Post(e.URL()+"/v1/completions", "application/json", strings.NewReader(long))
		if err != nil || resp.Body.Close() != nil {
			t.Fatal(err)
		}
		testkit.Until(t, "the blocks arrive", func() bool { return blocksKnown(t, r) >= known+4 })
		release()
		rows := show[struct {
			Rows []struct{ Columns map[string]float64 }
		}](t, r, "/v1/decisions/"+<-answered).Rows
		return rows[0].Columns["kv.overlap_device"]
	}
	before := cached("apple")
	r.change(t, func(c *config.Config) { c.Queue.RefreshAfter = config.Duration(time.Millisecond) }, "queue.refresh_after")
	if after := cached("pear"); before != 0 || after < 4 {
		t.Errorf("blocks that the decision saw: %v with 10s, %v with 1ms", before, after)
	}
}

// blocksKnown is the number of blocks in the index.
func blocksKnown(t *testing.T, r *reloadable) int {
	t.Helper()
	got := show[struct {
		Partitions []struct {
			Ranks []struct {
				KV struct{ Blocks map[string]int }
			}
		}
	}](t, r, "/v1/partitions")
	return got.Partitions[0].Ranks[0].KV.Blocks["device"]
}

func testOverload(key string, set func(*config.Overload)) func(*testing.T) {
	return func(t *testing.T) {
		r, p := waitingRouter(t, func(*config.QueueClass) {})
		send(t, r.App, "first", "", 100)
		p.next(t)
		before := r.probe(t)
		r.change(t, func(c *config.Config) { set(&c.Queue.Overload) }, "queue.overload."+key)
		after := r.probe(t)
		statuses(t, [2]int{http.StatusOK, http.StatusTooManyRequests}, before.status, after.status)
		if after.Error.Code != "overloaded" || !strings.Contains(after.Error.Message, "is overloaded") {
			t.Errorf("got %+v", after)
		}
		r.change(t, func(c *config.Config) { c.Queue.Overload = config.Overload{} }, "queue.overload."+key)
		if again := r.probe(t); again.status != http.StatusOK {
			t.Errorf("off again: %+v", again)
		}
	}
}

func testAffinityMode(t *testing.T) {
	r := withWorkers(t, fine, fine)
	by := func() string {
		t.Helper()
		_, head := r.ask(t, "m", "X-Routerd-Session", "s")
		return show[struct{ Pick struct{ By string } }](t, r, "/v1/decisions/"+head.Get("x-routerd-decision")).Pick.By
	}
	by() // binds
	got := []string{by()}
	for _, mode := range []string{"soft", "hard"} {
		r.change(t, func(c *config.Config) { c.Affinity.Mode = mode }, "affinity.mode")
		got = append(got, by())
	}
	if diff := cmp.Diff([]string{"session", "policy", "session"}, got); diff != "" {
		t.Errorf("hard, soft, hard (-want +got)\n%s", diff)
	}
}

func testRuleOfAClass(t *testing.T) {
	r := policed(t)
	decidedBy := func(class string) string {
		t.Helper()
		_, head := r.ask(t, "m", "X-Routerd-Class", class)
		return show[struct{ Policy struct{ Name string } }](t, r, "/v1/decisions/"+head.Get("x-routerd-decision")).Policy.Name
	}
	got := []string{decidedBy("batch"), decidedBy("chat")}
	r.change(t, func(c *config.Config) {
		c.Routing.Rules = []config.Rule{{Class: "batch", Policy: "one"}, {Model: "m", Class: "chat", Policy: "two"}}
	}, "routing.rules")
	got = append(got, decidedBy("batch"), decidedBy("chat"), decidedBy("other"))
	if diff := cmp.Diff([]string{"default", "default", "one", "two", "default"}, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// adapterRouter is a router with one engine that loads adapters while it runs.
func adapterRouter(t *testing.T) (*reloadable, *sim.Engine) {
	t.Helper()
	e := engine(t, "e1", func(c *sim.Config) { c.AdapterUpdates = true })
	r := startReloadable(t, settings(t, e))
	waitForWorkers(t, r.App)
	return r, e
}

// loaded are the adapters of an engine with where they came from.
func loaded(t *testing.T, e *sim.Engine) map[string]string {
	t.Helper()
	resp, err := client.Get(e.URL() + "/v1/models")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	var got struct {
		Data []struct{ ID, Parent, Root string }
	}
	if err := json.NewDecoder(resp.Body).Decode(&got); err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, m := range got.Data {
		if m.Parent != "" {
			out[m.ID] = m.Root
		}
	}
	return out
}

func testManagedAdapters(t *testing.T) {
	r, e := adapterRouter(t)
	before, _ := r.ask(t, "sql")
	r.change(t, func(c *config.Config) {
		c.LoRA.Manage = []adapters.Adapter{{Name: "sql", Model: "m", Path: "/lora/sql"}, {Name: "other", Model: "n", Path: "/lora/other"}}
	}, "lora.manage")
	testkit.Until(t, "the adapter is served", func() bool { status, _ := r.ask(t, "sql"); return status == http.StatusOK })
	if before != http.StatusNotFound {
		t.Errorf("status %d before", before)
	}
	if diff := cmp.Diff(map[string]string{"sql": "/lora/sql"}, loaded(t, e)); diff != "" {
		t.Errorf("the engine's adapters (-want +got)\n%s", diff)
	}
	if n := metric(t, r, `routerd_lora_adapters{state="loaded"}`); n != 1 {
		t.Errorf("the metric counts %v loaded", n)
	}
}

func TestAWorkerWhoseEngineLoadsNoAdaptersIsShown(t *testing.T) {
	cfg := settings(t, engine(t, "e1", nil)) // its routes are off
	cfg.LoRA.Manage = []adapters.Adapter{{Name: "sql", Model: "m", Path: "/lora/sql"}}
	r := startReloadable(t, cfg)
	type shown struct {
		Lifecycle string
		Reasons   []string
	}
	var got shown
	testkit.Until(t, "the worker has a reason", func() bool {
		got = show[shown](t, r, "/v1/workers/w1")
		return got.Lifecycle == "ready" && len(got.Reasons) == 1
	})
	if !strings.HasPrefix(got.Reasons[0], "adapter_failed: sql: ") {
		t.Errorf("got %+v", got)
	}
	if status, _ := r.ask(t, "sql"); status == http.StatusOK {
		t.Error("an adapter that is loaded nowhere was served")
	}
}

func testAdapterSlots(t *testing.T) {
	r, e := adapterRouter(t)
	manage := []adapters.Adapter{{Name: "one", Model: "m", Path: "/1"}, {Name: "two", Model: "m", Path: "/2"}}
	r.change(t, func(c *config.Config) { c.LoRA.Slots, c.LoRA.Manage = 1, manage }, "lora.manage", "lora.slots")
	testkit.Until(t, "one adapter is loaded", func() bool { return metric(t, r, `routerd_lora_adapters{state="loaded"}`) == 1 })
	before := len(loaded(t, e))
	r.change(t, func(c *config.Config) { c.LoRA.Slots = 2 }, "lora.slots")
	testkit.Until(t, "both are loaded", func() bool { return len(loaded(t, e)) == 2 })
	if before != 1 {
		t.Errorf("%d adapters in one slot", before)
	}
}

// cachingRouter is a router whose worker turns each prompt into 64 tokens.
func cachingRouter(t *testing.T, change ...func(*config.Config)) *reloadable {
	t.Helper()
	cfg := settings(t)
	cfg.Workers.Static = append(cfg.Workers.Static, record(t, "w1", fakeWorker(t, func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path != "/tokenize" {
			fine(w, req)
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"tokens": slices.Repeat([]int{7}, 64), "count": 64})
	})))
	for _, f := range change {
		f(&cfg)
	}
	r := startReloadable(t, cfg)
	waitForWorkers(t, r.App)
	return r
}

// shared is how many blocks of its prompt a request's decision saw in the shared
// cache.
func (r *reloadable) shared(t *testing.T) float64 {
	t.Helper()
	_, head := r.ask(t, "m")
	return show[struct {
		Rows []struct{ Columns map[string]float64 }
	}](t, r, "/v1/decisions/"+head.Get("x-routerd-decision")).Rows[0].Columns["kv.overlap_shared"]
}

func testSharedCacheURL(t *testing.T) {
	holds := func(blocks int) string {
		return fakeWorker(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintf(w, `{"ranges":[[0,%d]]}`, blocks) })
	}
	slow := func(c *config.Config) { c.SharedCache.Deadline = config.Duration(time.Second) } // the machine may be busy
	r := cachingRouter(t, slow)
	got := []float64{r.shared(t)}
	for _, url := range []string{holds(2), holds(3), ""} {
		r.change(t, func(c *config.Config) { c.SharedCache.URL = url }, "shared_cache.url")
		got = append(got, r.shared(t))
	}
	if diff := cmp.Diff([]float64{0, 2, 3, 0}, got); diff != "" {
		t.Errorf("blocks in no cache, in two and in none again (-want +got)\n%s", diff)
	}
}

// A server that is killed costs one deadline and no request, and is asked again
// once it is back.
func TestASharedCacheThatWentAwayIsAskedAgainWhenItIsBack(t *testing.T) {
	var down atomic.Bool
	url := fakeWorker(t, func(w http.ResponseWriter, _ *http.Request) {
		if down.Load() {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		_, _ = fmt.Fprint(w, `{"ranges":[[0,4]]}`)
	})
	r := cachingRouter(t, func(c *config.Config) {
		c.SharedCache = config.SharedCache{URL: url, Deadline: config.Duration(time.Second)}
	})
	got := []float64{r.shared(t)}
	down.Store(true)
	got = append(got, r.shared(t))
	if metric(t, r, "routerd_shared_cache_away") != 1 {
		t.Error("the metric does not say that it is away")
	}
	down.Store(false)
	testkit.Until(t, "it is back", func() bool { return metric(t, r, "routerd_shared_cache_away") == 0 })
	got = append(got, r.shared(t))
	if diff := cmp.Diff([]float64{4, 0, 4}, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func testSharedCacheDeadline(t *testing.T) {
	var asked atomic.Int64
	url := fakeWorker(t, func(w http.ResponseWriter, req *http.Request) {
		asked.Add(1)
		select {
		case <-time.After(50 * time.Millisecond):
			_, _ = fmt.Fprint(w, `{"ranges":[[0,4]]}`)
		case <-req.Context().Done():
		}
	})
	r := cachingRouter(t, func(c *config.Config) { c.SharedCache.URL = url })
	before := r.shared(t)
	r.change(t, func(c *config.Config) { c.SharedCache.Deadline = config.Duration(time.Second) }, "shared_cache.deadline")
	after := r.shared(t)
	if diff := cmp.Diff([2]float64{0, 4}, [2]float64{before, after}); diff != "" || asked.Load() < 2 {
		t.Errorf("asked %d times (-want +got)\n%s", asked.Load(), diff)
	}
}
