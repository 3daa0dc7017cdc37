package scrape_test

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/routerd/routerd/catalog/scrape"
	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/core/load"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/internal/testkit"
	"github.com/routerd/routerd/sim"
	"github.com/routerd/routerd/sim/simtest"
)

var w1 = fleet.Worker{ID: 1}

func known(s *scrape.Scraper, w fleet.Worker) func() bool {
	return func() bool {
		_, ok := s.Report(w)
		return ok
	}
}

func TestAWorkersMetricsBecomeItsReport(t *testing.T) {
	e := newEngine(t, fixture(t, "openai/metrics_vllm_0_33.txt"), fixture(t, "openai/models_vllm.json"))
	s := scrape.New(quick(), listOf(record(1, e.URL)), discard())
	began := time.Now()
	start(t, s)
	testkit.Until(t, "there is a report", known(s, w1))
	got, _ := s.Report(w1)
	want := load.Report{Queued: 7, Running: 3, KVUsed: -1, KVTotal: 20000, KVUsage: 0.42}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(load.Report{}, "At")); diff != "" {
		t.Error(diff)
	}
	if got.At.Before(began) || time.Since(got.At) > patience {
		t.Errorf("made at %v", got.At)
	}
	if age, ok := s.AgeOf(w1); !ok || age < 0 || age > patience {
		t.Errorf("age %v, %v", age, ok)
	}
	for _, w := range []fleet.Worker{{ID: 1, Rank: 1}, {ID: 2}} {
		if r, ok := s.Report(w); ok {
			t.Errorf("worker %v has %+v", w, r)
		}
		if _, ok := s.AgeOf(w); ok {
			t.Errorf("worker %v has an age", w)
		}
	}
	body := strings.Replace(fixture(t, "openai/metrics_vllm_0_33.txt"), "} 7.0", "} 8.0", 1)
	e.metrics.Store(&body)
	testkit.Until(t, "the next one is there", func() bool {
		r, _ := s.Report(w1)
		return r.Queued == 8
	})
}

func TestASimulatedEngineIsRead(t *testing.T) {
	e := simtest.Start(t, func(c *sim.Config) { c.Ranks = 2 })
	r := record(1, e.URL())
	r.DPSize = 2
	s := scrape.New(quick(), listOf(r), discard())
	start(t, s)
	testkit.Until(t, "both ranks are known", func() bool {
		return known(s, w1)() && known(s, fleet.Worker{ID: 1, Rank: 1})()
	})
	got, _ := s.Report(fleet.Worker{ID: 1, Rank: 1})
	if got.Queued != 0 || got.Running != 0 || got.KVUsage != 0 || got.KVTotal <= 0 {
		t.Errorf("got %+v", got)
	}
}

func TestTheFacesOfSimulatedEnginesAreRead(t *testing.T) {
	for face, engine := range map[sim.Face]string{
		sim.FaceVLLM09: "vllm", sim.FaceVLLM033: "vllm", sim.FaceLLMD: "llm-d",
		sim.FaceSGLang0510: "sglang", sim.FaceSGLang0523: "sglang",
	} {
		t.Run(string(face), func(t *testing.T) {
			e := simtest.Start(t, func(c *sim.Config) { c.Face = face })
			r := record(1, e.URL())
			r.Engine = engine
			s := scrape.New(quick(), listOf(r), discard())
			start(t, s)
			testkit.Until(t, "there is a report", known(s, w1))
			if got, _ := s.Report(w1); got.Queued != 0 || got.Running != 0 || got.KVUsage != 0 {
				t.Errorf("got %+v", got)
			}
			if n, _ := s.Asked("ok"); n == 0 {
				t.Error("no answer was good")
			}
		})
	}
}

func TestTensorRTIsAskedForItsPrometheusMetrics(t *testing.T) {
	e := newEngine(t, "trtllm_num_requests_running 2\n", fixture(t, "openai/models_vllm.json"))
	e.path = "/prometheus/metrics"
	r := record(1, e.URL)
	r.Engine = "trtllm"
	s := scrape.New(quick(), listOf(r), discard())
	start(t, s)
	testkit.Until(t, "there is a report", known(s, w1))
}

func TestAFailingEngineIsToldOnceAndCounted(t *testing.T) {
	for _, c := range []struct {
		result string
		fail   func(*engine)
	}{
		{"status", func(e *engine) { e.status.Store(http.StatusNotFound) }},
		{"status", func(e *engine) { e.status.Store(http.StatusFound) }},
		{"no_load", func(e *engine) { body := "python_gc 1\n"; e.metrics.Store(&body) }},
		{"too_large", func(e *engine) {
			body := strings.Repeat("# a line that says nothing of interest to anybody\n", 9<<20/50)
			e.metrics.Store(&body)
		}},
		{"timeout", func(e *engine) { hold := make(chan struct{}); e.hold.Store(&hold) }},
	} {
		t.Run(c.result, func(t *testing.T) {
			e := newEngine(t, fixture(t, "openai/metrics_vllm_0_33.txt"), fixture(t, "openai/models_vllm.json"))
			log := &journal{}
			cfg := quick()
			cfg.Timeout = 400 * time.Millisecond
			s := scrape.New(cfg, listOf(record(1, e.URL)), slog.New(slog.NewTextHandler(log, nil)))
			reg := prometheus.NewRegistry()
			must(t, s.Register(reg))
			start(t, s)
			testkit.Until(t, "there is a report", known(s, w1))
			good := *e.metrics.Load()
			c.fail(e)
			testkit.Until(t, "it failed three times", func() bool {
				n, _ := s.Asked(c.result)
				return n >= 3
			})
			if _, ok := s.Report(w1); !ok {
				t.Error("the last report went before it was old")
			}
			testkit.Until(t, "it was logged", func() bool { return log.lines("engine does not tell its load") == 1 })
			if log.lines("reason="+c.result) != 1 {
				t.Errorf("log:\n%s", log.text.String())
			}
			e.status.Store(http.StatusOK)
			e.metrics.Store(&good)
			e.release()
			testkit.Until(t, "that it is well was logged", func() bool { return log.lines("engine tells its load again") == 1 })
			if families, err := reg.Gather(); err != nil || len(families) != 8 {
				t.Errorf("%d metrics, %v", len(families), err)
			}
		})
	}
}

func TestAnEngineThatRefusesIsToldAndComesBack(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	address := listener.Addr().String()
	must(t, listener.Close())
	s := scrape.New(quick(), listOf(record(1, "http://"+address)), discard())
	start(t, s)
	testkit.Until(t, "it was asked in vain", func() bool {
		n, _ := s.Asked("unreachable")
		return n >= 2
	})
	listener, err = net.Listen("tcp", address)
	must(t, err)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "vllm:num_requests_running 1\n")
	})}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	testkit.Until(t, "there is a report", known(s, w1))
	must(t, server.Close())
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		t.Error(err)
	}
}

// TestHostileAnswersAreSurvived has an engine answer with what is no HTTP, an
// endless head, an endless body and a cut one.
func TestHostileAnswersAreSurvived(t *testing.T) {
	for name, answer := range map[string]func(io.Writer) error{
		"no HTTP":      func(w io.Writer) error { _, err := w.Write([]byte("SSH-2.0-x\r\n\r\n")); return err },
		"endless head": func(w io.Writer) error { return forever(w, "HTTP/1.1 200 OK\r\n", "A: b\r\n") },
		"endless line": func(w io.Writer) error { return forever(w, "", strings.Repeat("x", 1000)) },
		"endless body": func(w io.Writer) error {
			return forever(w, "HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n"+strings.Repeat("y", 99999)+"HTTP/1.1 ", "200 OK\r\n\r\n")
		},
		"cut body": func(w io.Writer) error {
			_, err := io.WriteString(w, "HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\nvllm:num_requests_running 1\n")
			return err
		},
		"bad chunks": func(w io.Writer) error {
			_, err := io.WriteString(w, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nvllm:num_requests_running 1\n")
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			must(t, err)
			done := make(chan struct{})
			go func() {
				defer close(done)
				for {
					conn, err := listener.Accept()
					if err != nil {
						return
					}
					_, _ = conn.Read(make([]byte, 4096))
					_ = answer(conn)
					_ = conn.Close()
				}
			}()
			cfg := quick()
			cfg.Timeout = 400 * time.Millisecond
			s := scrape.New(cfg, listOf(record(1, "http://"+listener.Addr().String())), discard())
			stop := start(t, s)
			testkit.Until(t, "it was asked twice", func() bool {
				var all uint64
				for _, result := range []string{"unreadable", "too_large", "timeout", "no_load", "status", "unreachable"} {
					n, _ := s.Asked(result)
					all += n
				}
				return all >= 2
			})
			stop()
			if r, ok := s.Report(w1); ok {
				t.Errorf("it made %+v", r)
			}
			must(t, listener.Close())
			<-done
		})
	}
}

func forever(w io.Writer, first, then string) error {
	if _, err := io.WriteString(w, first); err != nil {
		return err
	}
	for {
		if _, err := io.WriteString(w, then); err != nil {
			return err
		}
	}
}

func TestAConnectionIsKeptAndAClosedOneReplaced(t *testing.T) {
	e := newEngine(t, fixture(t, "openai/metrics_vllm_0_33.txt"), fixture(t, "openai/models_vllm.json"))
	var dialled int
	s := scrape.New(quick(), listOf(record(1, e.URL)), discard())
	dial := dialling(&dialled)
	s.SetDial(dial)
	stop := start(t, s)
	testkit.Until(t, "it was asked five times", func() bool { return e.asked.Load() >= 5 })
	e.CloseClientConnections()
	asked := e.asked.Load()
	testkit.Until(t, "it was asked again", func() bool { return e.asked.Load() >= asked+3 })
	stop()
	if dialled != 2 {
		t.Errorf("dialled %d times; want 2", dialled)
	}
	for _, result := range []string{"unreadable", "unreachable", "timeout"} {
		if n, m := s.Asked(result); n+m != 0 {
			t.Errorf("%d, %d %s", n, m, result)
		}
	}
}

func TestIdleConnectionsHaveNoGoroutines(t *testing.T) {
	const workers = 150
	e := newEngine(t, "vllm:num_requests_running 1\n", fixture(t, "openai/models_vllm.json"))
	was := runtime.NumGoroutine()
	var records []fleet.Record
	for i := range workers {
		records = append(records, record(fleet.WorkerID(1+i), e.URL))
	}
	cfg := quick()
	cfg.Interval = 2 * time.Second
	s := scrape.New(cfg, listOf(records...), discard())
	start(t, s)
	for i := range workers {
		testkit.Until(t, "all have a report", known(s, fleet.Worker{ID: fleet.WorkerID(1 + i)}))
	}
	// The server has one for each connection, and the scraper those of answers that
	// are waited for.
	testkit.Until(t, "only the server's goroutines are there", func() bool { return runtime.NumGoroutine() <= was+workers+10 })
	if most := e.mostAtOnce.Load(); most > 64 {
		t.Errorf("%d asked at once", most)
	}
}

func TestOnlyWorkersThatCanBeAskedAre(t *testing.T) {
	for name, c := range map[string]struct {
		lifecycle core.Lifecycle
		change    func(*fleet.Record)
		asked     bool
	}{
		"ready":          {core.Ready, func(*fleet.Record) {}, true},
		"draining":       {core.Draining, func(*fleet.Record) {}, true},
		"ejected":        {core.Ejected, func(*fleet.Record) {}, true},
		"incomplete":     {core.Incomplete, func(*fleet.Record) {}, false},
		"nowhere":        {core.Ready, func(r *fleet.Record) { r.URL = "" }, false},
		"without a rank": {core.Ready, func(r *fleet.Record) { r.DPSize = 0 }, false},
		"unwatched":      {core.Ready, func(r *fleet.Record) { r.NoHealthCheck = true }, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e, log := newPipeEngine(plain, cards()), new(testkit.Log)
				rec := record(1, "http://w1:1")
				c.change(&rec)
				workers := listOf(rec, record(2, "http://w2:1"))
				workers.setLifecycle(c.lifecycle)
				s := scrape.New(scrape.DefaultConfig(), workers, slog.New(slog.NewTextHandler(log, nil)))
				s.SetDial(e.dial)
				defer start(t, s)()
				asks := func(when string, want bool) {
					t.Helper()
					before := e.count("w1:1")
					wait(time.Minute)
					if n := e.count("w1:1") - before; (n > 0) != want {
						t.Errorf("%s it is asked %d times", when, n)
					}
				}
				asks("as it comes", c.asked)
				workers.set(record(1, "http://w1:1"))
				asks("when it serves", true)
				workers.set(rec)
				workers.setLifecycle(c.lifecycle)
				wait(time.Second)
				asks("when it does so no more", c.asked)
				if n := e.count("/metrics") + e.count("/v1/models") - e.count("w1:1") - e.count("w2:1"); n != 0 || log.Count("level=WARN") > 0 {
					t.Errorf("somebody else is asked %d times\n%s", n, log)
				}
			})
		})
	}
}

func TestTheListIsReadWhenItHasChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, workers, s := piped()
		defer start(t, s)()
		wait(time.Minute)
		if n := workers.reads(); n != 1 {
			t.Errorf("read %d times in a minute without a change", n)
		}
		for id := range fleet.WorkerID(10) { // within the time that collects them
			workers.set(record(1, "http://w1:1"), record(2+id, "http://w2:1"))
		}
		wait(time.Second)
		if n := workers.reads(); n != 2 || !known(s, fleet.Worker{ID: 11})() {
			t.Errorf("read %d times after a change", n)
		}
	})
}

func TestReportsAreReadWithoutAllocating(t *testing.T) {
	s := scrape.New(quick(), listOf(), discard())
	s.Known(record(1, "http://127.0.0.1:1"))
	s.Pushed(w1, scrape.Push{At: time.Now(), Running: 1})
	if got := testing.AllocsPerRun(100, func() {
		if _, ok := s.Report(w1); !ok {
			t.Fatal("no report")
		}
	}); got != 0 {
		t.Errorf("%v allocations", got)
	}
}

func TestConfigRangesAreNamed(t *testing.T) {
	must(t, scrape.DefaultConfig().Validate())
	off := scrape.DefaultConfig()
	off.Interval = 0
	must(t, off.Validate())
	for field, change := range map[string]func(*scrape.Config){
		"interval": func(c *scrape.Config) { c.Interval = time.Millisecond },
		"timeout":  func(c *scrape.Config) { c.Timeout = 0 },
		"max_age":  func(c *scrape.Config) { c.MaxAge = time.Hour },
	} {
		cfg := scrape.DefaultConfig()
		change(&cfg)
		var refused *fleet.FieldError
		if err := cfg.Validate(); !errors.As(err, &refused) || refused.Field != field {
			t.Errorf("%s: got %v", field, err)
		}
	}
}

func TestPausesGrowAndAreSpread(t *testing.T) {
	var got []string
	for failures := range 6 {
		got = append(got, scrape.Pause(time.Second, failures).String())
	}
	if diff := cmp.Diff("[1s 1s 2s 4s 5s 5s]", fmt.Sprint(got)); diff != "" {
		t.Error(diff)
	}
	if got := scrape.Pause(20*time.Second, 9); got != 20*time.Second {
		t.Errorf("got %v", got)
	}
	for at, want := range map[float64]time.Duration{0: 800 * time.Millisecond, 0.5: time.Second, 1: 1200 * time.Millisecond} {
		if got := scrape.Spread(time.Second, at); got != want {
			t.Errorf("at %v: got %v, want %v", at, got, want)
		}
	}
}
