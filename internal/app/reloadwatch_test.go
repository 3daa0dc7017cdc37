package app_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/catalog/health"
	"github.com/routerd/routerd/catalog/scrape"
	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/internal/app"
	"github.com/routerd/routerd/internal/config"
	"github.com/routerd/routerd/internal/testkit"
	"github.com/routerd/routerd/upstream"
)

// watchKeys are the live keys of what watches the workers, sorted.
func watchKeys() []string {
	var all []string
	for prefix, keys := range map[string][]string{
		"frontend.breaker.": {"cooldown", "failures", "max_cooldown", "successes"},
		"workers.health_check.": {
			"base_ejection", "failures", "grace", "interval", "max_ejected", "max_ejection", "passive.failures", "passive.window", "path",
			"slow_start", "successes", "timeout",
		},
		"workers.scrape.": {"interval", "max_age", "timeout"},
	} {
		for _, key := range keys {
			all = append(all, prefix+key)
		}
	}
	slices.Sort(all)
	return all
}

// watchTests see that each of the keys arrives, and what watches the workers at
// work.
func watchTests() map[string]func(*testing.T) {
	return map[string]func(*testing.T){
		"watch_config": testWatchConfig, "what watches workers": testWatching,
		"frontend.breaker": testBreaker, "workers.health_check": testHealthCheck, "workers.scrape": testScrape,
	}
}

// testWatching gives each of the keys another value than it has by default.
func testWatching(t *testing.T) {
	r := startReloadable(t, settings(t))
	want := app.WatchSettings{
		Health: health.Config{
			Interval: 7 * time.Second, Timeout: 3 * time.Second, Path: "/other", Failures: 4, Successes: 5, Grace: 6 * time.Minute, MaxEjected: 70,
			BaseEjection: 8 * time.Second, MaxEjection: 9 * time.Minute, SlowStart: 11 * time.Second,
			Passive: health.Passive{Failures: 12, Window: 13 * time.Second},
		},
		Scrape:  scrape.Config{Interval: 14 * time.Second, Timeout: 15 * time.Second, MaxAge: 16 * time.Second},
		Breaker: upstream.BreakerConfig{Failures: 17, Cooldown: 18 * time.Second, MaxCooldown: 19 * time.Minute, Successes: 20},
	}
	set := func(w app.WatchSettings) func(*config.Config) {
		return func(c *config.Config) {
			c.Workers.HealthCheck, c.Workers.Scrape, c.Frontend.Breaker = w.Health, w.Scrape, w.Breaker
		}
	}
	was := r.inside.Watching()
	for _, w := range []app.WatchSettings{want, was} {
		r.change(t, set(w), watchKeys()...)
		if diff := cmp.Diff(w, r.inside.Watching()); diff != "" {
			t.Errorf("in force (-want +got)\n%s", diff)
		}
	}
	if diff := cmp.Diff(app.WatchSettings{Health: health.DefaultConfig(), Scrape: scrape.DefaultConfig(), Breaker: upstream.DefaultBreakerConfig()}, was); diff != "" {
		t.Errorf("at the start (-want +got)\n%s", diff)
	}
}

// watchedWorkers is a router whose workers' health and load it looks after.
func watchedWorkers(t *testing.T, change func(*config.Config), handlers ...http.HandlerFunc) *reloadable {
	t.Helper()
	cfg := settings(t)
	for i, h := range handlers {
		rec := record(t, fmt.Sprintf("w%d", i+1), fakeWorker(t, h), func(r *fleet.Record) { r.NoHealthCheck = false })
		cfg.Workers.Static = append(cfg.Workers.Static, rec)
	}
	change(&cfg)
	r := startReloadable(t, cfg)
	waitForWorkers(t, r.App)
	return r
}

// lifecycle is where a worker stands.
func lifecycle(t *testing.T, r *reloadable, name string) core.Lifecycle {
	t.Helper()
	return show[struct{ Lifecycle core.Lifecycle }](t, r, "/v1/workers/"+name).Lifecycle
}

func testHealthCheck(t *testing.T) {
	sick := func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/other" {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		fine(w, r)
	}
	r := watchedWorkers(t, func(c *config.Config) { c.Workers.HealthCheck.Interval = 0 }, sick, fine)
	r.change(t, func(c *config.Config) {
		h := &c.Workers.HealthCheck
		h.Interval, h.Path, h.Failures, h.Successes = 100*time.Millisecond, "/other", 1, 1
	}, "workers.health_check.failures", "workers.health_check.interval", "workers.health_check.path", "workers.health_check.successes")
	testkit.Until(t, "w1 is ejected", func() bool { return lifecycle(t, r, "w1") == core.Ejected })
	if got := lifecycle(t, r, "w2"); got != core.Ready {
		t.Errorf("w2 is %s", got)
	}
	r.change(t, func(c *config.Config) { c.Workers.HealthCheck.Path = "/health" }, "workers.health_check.path")
	testkit.Until(t, "w1 is back", func() bool { return lifecycle(t, r, "w1") == core.Ready })
	// Failures of requests count too.
	var broken atomic.Bool
	broken.Store(true)
	r = watchedWorkers(t, func(c *config.Config) {
		c.Workers.HealthCheck.Interval, c.Workers.HealthCheck.Passive.Failures, c.Frontend.Retries = 0, 0, 0
	}, func(w http.ResponseWriter, q *http.Request) {
		if q.URL.Path == "/v1/completions" && broken.Load() {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		fine(w, q)
	}, fine)
	r.change(t, func(c *config.Config) { c.Workers.HealthCheck.Passive.Failures = 1 }, "workers.health_check.passive.failures")
	testkit.Until(t, "w1 is ejected by what it answers", func() bool {
		_, _ = r.ask(t, "m")
		return lifecycle(t, r, "w1") == core.Ejected
	})
}

func testScrape(t *testing.T) {
	var asked atomic.Int64
	r := watchedWorkers(t, func(c *config.Config) {
		c.Workers.Scrape.Interval, c.Workers.HealthCheck.Interval = 0, 0
	}, func(w http.ResponseWriter, q *http.Request) {
		if q.URL.Path == "/metrics" && q.Header.Get("Accept-Encoding") == "" {
			asked.Add(1)
			_, _ = fmt.Fprintln(w, `vllm:num_requests_running{model_name="m"} 3`)
			return
		}
		fine(w, q)
	})
	before := asked.Load()
	r.change(t, func(c *config.Config) { c.Workers.Scrape.Interval = 100 * time.Millisecond }, "workers.scrape.interval")
	testkit.Until(t, "the engine is asked for its load", func() bool { return asked.Load() > before+3 })
}

func testBreaker(t *testing.T) {
	r := watchedWorkers(t, func(c *config.Config) {
		c.Frontend.Breaker.Failures, c.Frontend.Retries, c.Workers.HealthCheck.Interval, c.Workers.HealthCheck.Passive.Failures = 0, 0, 0, 0
	}, func(w http.ResponseWriter, q *http.Request) {
		if q.URL.Path == "/v1/completions" {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		fine(w, q)
	}, fine)
	for range 10 {
		_, _ = r.ask(t, "m")
	}
	if n := metric(t, r, `routerd_upstream_breakers{state="open"}`); n != 0 {
		t.Errorf("%g breakers are open though there are none", n)
	}
	r.change(t, func(c *config.Config) {
		b := &c.Frontend.Breaker
		b.Failures, b.Cooldown, b.MaxCooldown = 1, time.Hour, time.Hour
	}, "frontend.breaker.cooldown", "frontend.breaker.failures", "frontend.breaker.max_cooldown")
	testkit.Until(t, "the breaker opens", func() bool {
		_, _ = r.ask(t, "m")
		return metric(t, r, `routerd_upstream_breakers{state="open"}`) == 1
	})
	testkit.Until(t, "health hears of it", func() bool { return lifecycle(t, r, "w1") == core.Ejected })
}

func testWatchConfig(t *testing.T) {
	f := startFollowed(t, "watch_config: false\n"+front(""), nil)
	f.write("watch_config: false\n" + front(", max_body: 1KiB"))
	<-time.After(time.Second) // five times what a change needs to be seen
	if f.tooLong() || f.reloads("ok") != 0 {
		t.Error("the file was taken though nobody was to watch it")
	}
	f.write("watch_config: true\n" + front(""))
	if err := f.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.wrote("watch_config: true\n"+front(", max_body: 1KiB"), "ok")
	if !f.tooLong() {
		t.Error("the changed file is not in force")
	}
}

// Nobody asks a worker that has left the file, for its health or its load: the list leads
// from the file to those who watch.
func TestO6_NobodyAsksAWorkerThatLeftTheFile(t *testing.T) {
	var asked [2]atomic.Int64
	counting := func(i int) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			asked[i].Add(1)
			fine(w, r)
		}
	}
	r := watchedWorkers(t, func(c *config.Config) {
		c.Workers.HealthCheck.Interval, c.Workers.Scrape.Interval = 100*time.Millisecond, 100*time.Millisecond
	}, counting(0), counting(1))
	more := func(of, n int64) {
		t.Helper()
		from := asked[of].Load()
		testkit.Until(t, "questions come", func() bool { return asked[of].Load() >= from+n })
	}
	more(1, 4)
	r.change(t, func(c *config.Config) { c.Workers.Static = c.Workers.Static[:1] }, "workers.static")
	// What was under way when it left may still come; then nothing does.
	testkit.Until(t, "nobody asks the worker that has left", func() bool {
		before := asked[1].Load()
		more(0, 20)
		return asked[1].Load() == before
	})
}

// Whatever is asked of a worker whose URL ends with a slash has one path: requests,
// probes, questions for its load and for what it is.
func TestM1_NoRequestHasADoubledSlash(t *testing.T) {
	var mu sync.Mutex
	lines := map[string]bool{}
	url := fakeWorker(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		lines[r.Method+" "+r.RequestURI] = true
		mu.Unlock()
		fine(w, r)
	})
	cfg := settings(t)
	cfg.Workers.HealthCheck.Interval, cfg.Workers.Scrape.Interval = 100*time.Millisecond, 100*time.Millisecond
	cfg.Workers.Static = append(cfg.Workers.Static, record(t, "w1", "HTTP"+strings.TrimPrefix(url, "http")+"/", func(r *fleet.Record) { r.NoHealthCheck = false }))
	r := startReloadable(t, cfg)
	waitForWorkers(t, r.App)
	complete(t, r.App, "hello")
	testkit.Until(t, "all have asked", func() bool {
		mu.Lock()
		defer mu.Unlock()
		for _, line := range []string{"POST /v1/completions", "GET /v1/models", "GET /metrics", "GET /health"} {
			if !lines[line] {
				return false
			}
		}
		return true
	})
	mu.Lock()
	defer mu.Unlock()
	for line := range lines {
		if strings.Contains(line, "//") {
			t.Errorf("the worker was asked %s", line)
		}
	}
}
