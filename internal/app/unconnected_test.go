package app_test

import (
	"fmt"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/internal/app"
	"github.com/routerd/routerd/internal/config"
	"github.com/routerd/routerd/internal/testkit"
)

// Workers may share the endpoint that their engines connect to; the ranks of one may not.
func TestTheReasonsOfWorkersWhoseEnginesConnect(t *testing.T) {
	cfg := settings(t)
	cfg.Ingress.UnconnectedAfter = config.Duration(50 * time.Millisecond)
	r := startReloadable(t, cfg)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	bind := func(ln net.Listener) string { return fmt.Sprintf("tcp://*:%d", ln.Addr().(*net.TCPAddr).Port) }
	shared := bind(free)
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	for i, events := range []string{`{"0":"` + shared + `"}`, `{"0":"` + shared + `","1":"` + shared + `"}`, `{"0":"` + bind(taken) + `"}`} {
		body := fmt.Sprintf(`{"url":"http://127.0.0.1:%d","model":"m","block_size":16,"no_health_check":true,"kv_events":%s}`, i+1, events)
		if status, answer := r.call(t, http.MethodPut, fmt.Sprintf("/v1/workers/w%d", i+1), r.Token(), []byte(body)); status != http.StatusCreated {
			t.Fatalf("%d %s", status, answer)
		}
	}
	type worker struct{ Reasons []string }
	waits := "nothing of its engine has come to " + shared
	const only = `is not allowed; allowed: a port that rank \d of this worker does not have$`
	for name, want := range map[string][]string{
		"w1": {"^kv_events_unconnected: rank 0: " + regexp.QuoteMeta(waits) + "$"},
		"w2": {"^kv_events.[01]: .* kv_events: " + regexp.QuoteMeta(strconv.Quote(shared)) + " " + only, "^kv_events_unconnected: rank [01]: " + regexp.QuoteMeta(waits) + "$"},
		"w3": {"^kv_events_failed: rank 0: " + regexp.QuoteMeta(bind(taken)) + `: bind .*: address already in use$`},
	} {
		var got worker
		testkit.Until(t, name+" says what is wrong", func() bool {
			got = show[worker](t, r, "/v1/workers/"+name)
			return len(got.Reasons) == len(want)
		})
		for i, pattern := range want {
			if !regexp.MustCompile(pattern).MatchString(got.Reasons[i]) {
				t.Errorf("%s: %q, want %q", name, got.Reasons[i], pattern)
			}
		}
	}
}

func TestAPodIsAWorkerByItsNameOrAddress(t *testing.T) {
	for _, c := range []struct {
		name, url, pod string
		want           bool
	}{
		{"pod-1", "http://10.0.0.1:8000", "pod-1", true},
		{"pod-1", "http://10.0.0.1:8000", "10.0.0.1:8000", true},
		{"pod-1", "http://10.0.0.1:8000/base", "10.0.0.1:8000", true},
		{"pod-1", "http://[::1]:8000", "[::1]:8000", true},
		{"pod-1", "http://10.0.0.1:8000", "10.0.0.1", false},
		{"pod-1", "http://10.0.0.1:8000", "pod-12", false},
		{"pod-1", "", "", false},
	} {
		if got := app.IsPod(&fleet.Record{Name: c.name, URL: c.url}, c.pod); got != c.want {
			t.Errorf("%+v: got %v", c, got)
		}
	}
}

// What is wrong with a worker that serves stands beside it, and by its ranks.
func TestAReadyWorkersReasonsSayWhatIsWrong(t *testing.T) {
	cfg := settings(t)
	cfg.Ingress.UnconnectedAfter = config.Duration(50 * time.Millisecond)
	r := startReloadable(t, cfg)
	began := time.Now()
	for name, body := range map[string]string{
		"w1": `"url":"http://127.0.0.1:1","model":"b","adapters":[{"name":"sql"}],"dp_size":2,"kv_events":{"1":"tcp://127.0.0.1:1"}`,
		"w2": `"url":"http://127.0.0.1:2","model":"a","adapters":[{"name":"sql"}]`,
	} {
		if status, answer := r.call(t, http.MethodPut, "/v1/workers/"+name, r.Token(), []byte(`{"block_size":16,"no_health_check":true,`+body+`}`)); status != http.StatusCreated {
			t.Fatalf("%d %s", status, answer)
		}
	}
	type worker struct {
		Lifecycle string
		Reasons   []string
		Ranks     []struct{ Unconnected bool }
	}
	want := []string{
		`adapter_elsewhere: sql: requests for it go to model "a"`,
		"kv_events_unconnected: rank 1: not connected to tcp://127.0.0.1:1",
	}
	var got worker
	testkit.Until(t, "the publisher is away", func() bool {
		got = show[worker](t, r, "/v1/workers/w1")
		return slices.ContainsFunc(got.Ranks, func(k struct{ Unconnected bool }) bool { return k.Unconnected })
	})
	if took := time.Since(began); took >= config.DefaultConfig().Ingress.UnconnectedAfter.Std() {
		t.Errorf("told after %s, ingress.unconnected_after is 50ms", took)
	}
	if diff := cmp.Diff(worker{"ready", want, []struct{ Unconnected bool }{{false}, {true}}}, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if got := show[worker](t, r, "/v1/workers/w2"); got.Lifecycle != "ready" || len(got.Reasons) > 0 {
		t.Errorf("got %+v", got)
	}
}
