package scrape_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/routerd/routerd/catalog/scrape"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/internal/testkit"
)

func lora(at float64, names string) string {
	return fmt.Sprintf("vllm:num_requests_running 1\nvllm:lora_requests_info{running_lora_adapters=%q} %f\n", names, at)
}

func cards(names ...string) string {
	var list []string
	for _, name := range names {
		list = append(list, fmt.Sprintf(`{"id":%q,"parent":"base-model"}`, name))
	}
	return `{"data":[` + strings.Join(list, ",") + `]}`
}

func namesOf(s *scrape.Scraper, id fleet.WorkerID) string {
	loaded, ok := s.Adapters(id)
	if !ok {
		return "?"
	}
	var names []string
	for _, a := range loaded {
		names = append(names, a.Name)
	}
	return strings.Join(names, " ")
}

func TestAdaptersAreAskedForEveryHalfMinuteAndSoonerWhenTheMetricsNameAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newPipeEngine(lora(1000, "a"), cards("a"))
		s := scrape.New(scrape.DefaultConfig(), listOf(record(1, "http://w1:1")), discard())
		s.SetDial(e.dial)
		told := 0
		s.OnAdapters(func(fleet.WorkerID) { told++ }) // one worker: one call at a time
		defer func() {
			if told != 7 { // a; b; c, c without b; d; ghost, no ghost
				t.Errorf("told %d times of changes", told)
			}
		}()
		defer start(t, s)()
		at := func(d time.Duration, want string) {
			t.Helper()
			wait(d)
			if got := namesOf(s, 1); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		}
		if got := namesOf(s, 1); got != "?" {
			t.Errorf("got %q before it was asked", got)
		}
		at(2*time.Second, "a")
		e.set("", cards("a", "b"))
		at(15*time.Second, "a")
		at(25*time.Second, "a b")

		// For one in use that the list lacks the list is asked for.
		asked := e.count("/v1/models")
		e.set(lora(1001, "c"), cards("a", "c"))
		at(1500*time.Millisecond, "a c")
		if got := e.count("/v1/models"); got != asked+1 {
			t.Errorf("asked %d times", got-asked)
		}

		// If it was asked for a moment ago, what is in use counts before it is again.
		e.set(lora(1002, "d"), cards("a", "c", "d"))
		at(1200*time.Millisecond, "a c d")
		at(3*time.Second, "a c d")

		// One that the list lacks all the same is not believed again and again.
		e.set(lora(1003, "ghost"), "")
		at(5*time.Second, "a c d")
		e.set(lora(1004, "ghost"), "")
		at(5*time.Second, "a c d")
		if got := e.count("/v1/models"); got != asked+3 {
			t.Errorf("asked %d times", got-asked)
		}

		// Without an answer the last one counts for a while.
		e.set("", "no JSON")
		at(60*time.Second, "a c d")
		at(60*time.Second, "?")
		if _, models := s.Asked("unreadable"); models < 3 {
			t.Errorf("%d unreadable", models)
		}
	})
}

func TestAnEngineWithoutMetricsTellsItsAdaptersAllTheSame(t *testing.T) {
	e := newEngine(t, "nothing\n", fixture(t, "openai/models_sglang.json"))
	s := scrape.New(quick(), listOf(record(1, e.URL)), discard())
	start(t, s)
	testkit.Until(t, "its adapters are known", func() bool { return namesOf(s, 1) == "sql-adapter" })
	if _, ok := s.Adapters(2); ok {
		t.Error("those of an unknown worker are known")
	}
}
