package adapters_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/routerd/routerd/catalog/adapters"
	"github.com/routerd/routerd/core/lora"
	"github.com/routerd/routerd/fleet"
)

func TestAnEnginesWordsAreCutToOneLine(t *testing.T) {
	for body, want := range map[string]string{
		`{"error":{"message":"no such adapter","code":404}}`: "no such adapter",
		`{"success":false,"error_message":"too many"}`:       "too many",
		`{"object":"error","message":"bad","code":400}`:      "bad",
		`{"detail":"Not Found"}`:                             "Not Found",
		"<html>\n\x1b[31mgone\x00</html>":                    "<html>  [31mgone </html>",
		``:                                                   "",
		strings.Repeat("é", 150):                             strings.Repeat("é", 100) + "…",
	} {
		if got := adapters.Message([]byte(body)); got != want {
			t.Errorf("%.40q: %q, want %q", body, got, want)
		}
	}
}

func FuzzAnEnginesWords(f *testing.F) {
	for _, s := range []string{
		`{"error":{"message":"x"}}`, `{"error":"x","message":5}`, "\xff\xfe", `{"data":{}}`, strings.Repeat("é", 300),
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		if m := adapters.Message(body); len(m) > 210 || !utf8.ValidString(m) || strings.ContainsAny(m, "\n\r\x00\x1b") {
			t.Errorf("message %q", m)
		}
	})
}

// TestOneCallAtATimeForAWorker counts the calls that an engine is given at once;
// it is no engine that the simulated ones could be, since those take any number.
func TestOneCallAtATimeForAWorker(t *testing.T) {
	var under, most, calls atomic.Int32
	loaded := make(chan string, 8) // one for each adapter
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/models" {
			fmt.Fprint(w, `{"data":[]}`)
			return
		}
		most.Store(max(most.Load(), under.Add(1)))
		defer under.Add(-1)
		calls.Add(1)
		<-time.After(10 * time.Millisecond)
		select {
		case loaded <- r.URL.Path:
		default:
		}
	}))
	defer server.Close()
	b := newBench(t)
	b.worker(1, "vllm", server.URL)
	b.router.force(func([]lora.Worker) []lora.Action {
		var all []lora.Action
		for _, n := range []string{"a", "b", "c", "d"} {
			all = append(all, lora.Action{Worker: 1, Adapter: n, Load: true})
		}
		return all
	})
	b.run(manage(8, "a", "b", "c", "d"))
	b.eventually("calls", func() bool { return calls.Load() >= 8 })
	if got := most.Load(); got != 1 {
		t.Errorf("%d calls at once", got)
	}
	if got := <-loaded; got != "/v1/load_lora_adapter" {
		t.Errorf("path %s", got)
	}
}

func TestAnAnswerThatIsNoListCountsAsSilence(t *testing.T) {
	var asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch asked.Add(1) % 3 {
		case 0:
			http.Redirect(w, r, "/elsewhere", http.StatusFound)
		case 1:
			fmt.Fprint(w, "hello")
		default:
			http.Error(w, "busy", http.StatusServiceUnavailable)
		}
	}))
	defer server.Close()
	b := newBench(t)
	b.worker(1, "vllm", server.URL)
	b.run(manage(2, "sql"))
	b.eventually("asked", func() bool { return asked.Load() > 6 })
	b.router.mu.Lock()
	defer b.router.mu.Unlock()
	if len(b.router.last) != 0 || len(b.router.states) != 0 {
		t.Errorf("planned for %+v, told %v", b.router.last, b.router.states)
	}
}

func TestConfigurationsOutOfRangeNameTheField(t *testing.T) {
	if err := adapters.DefaultConfig().Validate(); err != nil {
		t.Error(err)
	}
	for _, c := range []struct {
		field  string
		change func(*adapters.Config)
	}{
		{"slots", func(c *adapters.Config) { c.Slots = 0 }},
		{"slots", func(c *adapters.Config) { c.Slots = 1025 }},
		{"manage (count)", func(c *adapters.Config) { c.Manage = make([]adapters.Adapter, 4097) }},
		{"manage[0].name", func(c *adapters.Config) { c.Manage[0].Name = "" }},
		{"manage[0].name", func(c *adapters.Config) { c.Manage[0].Name = "a\nb" }},
		{"manage[0].name", func(c *adapters.Config) { c.Manage[0].Name = "a\uFFFD" }},
		{"manage[1].name", func(c *adapters.Config) { c.Manage[1].Name = strings.Repeat("n", 257) }},
		{"manage[1].name", func(c *adapters.Config) { c.Manage[1].Name = c.Manage[0].Name }},
		{"manage[0].name", func(c *adapters.Config) { c.Manage[0].Name = "sim-model" }},
		{"manage[0].model", func(c *adapters.Config) { c.Manage[0].Model = "" }},
		{"manage[1].path", func(c *adapters.Config) { c.Manage[1].Path = "" }},
		{"manage[1].path", func(c *adapters.Config) { c.Manage[1].Path = "\xff" }},
	} {
		cfg := manage(4, "a", "b")
		cfg.Manage = slices.Clone(cfg.Manage)
		c.change(&cfg)
		var fe *fleet.FieldError
		if err := cfg.Validate(); !errors.As(err, &fe) || fe.Field != c.field {
			t.Errorf("want an error about %s, got %v", c.field, err)
		}
	}
}
