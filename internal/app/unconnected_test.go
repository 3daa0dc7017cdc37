package app_test

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/internal/config"
)

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
	until(t, "the publisher is away", func() bool {
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
