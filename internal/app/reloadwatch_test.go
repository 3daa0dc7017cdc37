package app_test

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/internal/config"
)

// watchKeys are the live keys of what watches the workers.
func watchKeys() map[string]func(*testing.T) {
	all := map[string]func(*testing.T){"watch_config": testWatchConfig}
	for _, key := range []string{"failures", "cooldown", "max_cooldown", "successes"} {
		all["frontend.breaker."+key] = testBreaker
	}
	for _, key := range []string{
		"interval", "timeout", "path", "failures", "successes", "grace", "max_ejected", "base_ejection", "max_ejection", "slow_start",
		"passive.failures", "passive.window",
	} {
		all["workers.health_check."+key] = testHealthCheck
	}
	for _, key := range []string{"interval", "timeout", "max_age"} {
		all["workers.scrape."+key] = testScrape
	}
	return all
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
	until(t, "w1 is ejected", func() bool { return lifecycle(t, r, "w1") == core.Ejected })
	if got := lifecycle(t, r, "w2"); got != core.Ready {
		t.Errorf("w2 is %s", got)
	}
	r.change(t, func(c *config.Config) { c.Workers.HealthCheck.Path = "/health" }, "workers.health_check.path")
	until(t, "w1 is back", func() bool { return lifecycle(t, r, "w1") == core.Ready })
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
	until(t, "w1 is ejected by what it answers", func() bool {
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
	until(t, "the engine is asked for its load", func() bool { return asked.Load() > before+3 })
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
	until(t, "the breaker opens", func() bool {
		_, _ = r.ask(t, "m")
		return metric(t, r, `routerd_upstream_breakers{state="open"}`) == 1
	})
	until(t, "health hears of it", func() bool { return lifecycle(t, r, "w1") == core.Ejected })
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
