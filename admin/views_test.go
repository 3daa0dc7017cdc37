package admin_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/routerd/routerd/admin"
	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/fleet"
)

// sel books one request and returns who serves it.
func (b *bench) sel(t testing.TB, id string, tokens int) *core.Selection {
	t.Helper()
	return b.selWith(t, id, func(r *core.Request) { r.Prompt.Count = tokens })
}

// selWith books for the request that change makes.
func (b *bench) selWith(t testing.TB, id string, change func(*core.Request)) *core.Selection {
	t.Helper()
	seed := uint64(1)
	req := &core.Request{
		Kind: core.Book, SelectionID: id, Surface: "test", RequestID: id, Seed: &seed,
		Partition: fleet.PartitionKey{Model: "m", Group: "default"}, Prompt: core.Prompt{Count: 16},
	}
	change(req)
	s, err := b.core.Select(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestAPartitionHasTheDocumentedForm(t *testing.T) {
	b := newBench(t)
	b.worker(t, fleet.Record{ID: 1, Name: "w1", URL: "http://127.0.0.1:9", Model: "m"})
	b.kv[fleet.Worker{ID: 1}] = admin.KV{
		Blocks: map[string]int{"device": 2, "host": 1, "disk": 0, "shared": 0}, Trusted: true, LastSeq: 18446744073709551615,
		Dropped: map[string]uint64{"unknown_parent": 3}, Hashes: map[string][]string{"device": {"5", "x:00ff"}, "host": {"5"}},
	}
	b.sel(t, "first", 96)
	want := `{"partitions":[{"model":"m","group":"default","block_size":16,"policy":{"name":"default","revision":1},"ranks":[` +
		`{"worker":1,"name":"w1","rank":0,"lifecycle":"ready","reasons":[],"load":{"prefill_tokens":96,"decode_blocks":6,"active_requests":1},` +
		`"kv":{"blocks":{"device":2,"disk":0,"host":1},"trusted":true,"last_seq":18446744073709551615,"dropped":{"unknown_parent":3}%s}}],` +
		`"queue":[{"class":"default","requests":0,"tokens":0}],"sessions":{"bound":0,"initialising":0,"leases":0}}]}` + "\n"
	a := b.call(t, "GET", "/v1/partitions", nil)
	if diff := cmp.Diff(fmt.Sprintf(want, ""), a.body); diff != "" {
		t.Error(diff)
	}
	for _, one := range []string{"1", "true"} {
		a = b.call(t, "GET", "/v1/partitions?model=m&group=default&blocks="+one, nil)
		if diff := cmp.Diff(fmt.Sprintf(want, `,"hashes":{"device":["5","x:00ff"],"host":["5"]}`), a.body); diff != "" {
			t.Error(diff)
		}
	}
	for _, none := range []string{"model=x", "group=x", "model=m&group=x"} {
		if a := b.call(t, "GET", "/v1/partitions?"+none, nil); a.body != "{\"partitions\":[]}\n" {
			t.Errorf("%s: got %s", none, a.body)
		}
	}
}

func TestARankThatIsNotTrustedSaysWhy(t *testing.T) {
	b := newBench(t)
	b.worker(t, fleet.Record{ID: 1, Name: "w1", URL: "http://127.0.0.1:9", Model: "m"})
	b.kv[fleet.Worker{ID: 1}] = admin.KV{Untrusted: "gap", LastSeq: 6}
	if a := b.call(t, "GET", "/v1/partitions", nil); !strings.Contains(a.body, `"trusted":false,"untrusted":"gap","last_seq":6`) {
		t.Errorf("got %s", a.body)
	}
}

func TestARankWithoutEventsHasEmptyTiers(t *testing.T) {
	b := newBench(t)
	b.worker(t, fleet.Record{ID: 1, Name: "w1", URL: "http://127.0.0.1:9", Model: "m"})
	a := b.call(t, "GET", "/v1/partitions?blocks=1", nil)
	want := `"kv":{"blocks":{"device":0,"disk":0,"host":0},"trusted":false,"last_seq":0,"dropped":{},"hashes":{"device":[]}}`
	if !strings.Contains(a.body, want) {
		t.Errorf("got %s", a.body)
	}
}

type decisionAnswer struct {
	ID        string
	Partition struct{ Model, Group string }
	Pick      struct {
		Worker   uint64
		Name, By string
		Rank     int
	}
	Request struct{ Tokens int }
	Rows    []struct {
		Worker  uint64
		Columns map[string]float64
	}
}

func TestDecisionsAreListedNewestFirstAndExplained(t *testing.T) {
	b := newBench(t)
	for id := range fleet.WorkerID(2) {
		b.worker(t, fleet.Record{ID: id + 1, Name: fmt.Sprintf("w%d", id+1), URL: fmt.Sprintf("http://127.0.0.1:%d", id+1), Model: "m"})
	}
	served := map[string]int{}
	for i := range 4 {
		served[b.sel(t, fmt.Sprintf("r%d", i), 10*(i+1)).Name]++
	}
	list := func(query string) []decisionAnswer {
		t.Helper()
		var got struct{ Decisions []decisionAnswer }
		b.call(t, "GET", "/v1/decisions"+query, nil).into(t, http.StatusOK, &got)
		return got.Decisions
	}
	all := list("")
	if len(all) != 4 || all[0].Request.Tokens != 40 || all[3].Request.Tokens != 10 || all[0].Rows != nil {
		t.Fatalf("got %+v", all)
	}
	for _, c := range []struct {
		query string
		want  int
	}{
		{"?limit=2", 2},
		{"?limit=1024", 4},
		{"?worker=w1", served["w1"]},
		{"?worker=2", served["w2"]},
		{"?worker=w1&limit=1", 1},
		{"?worker=none", 0},
		{"?partition=m", 4},
		{"?partition=m:default", 4},
		{"?partition=m:other", 0},
		{"?partition=other", 0},
	} {
		if got := list(c.query); len(got) != c.want {
			t.Errorf("%s: got %d, want %d", c.query, len(got), c.want)
		}
	}
	for _, id := range []string{all[0].ID, "r3"} {
		var one decisionAnswer
		b.call(t, "GET", "/v1/decisions/"+id, nil).into(t, http.StatusOK, &one)
		if one.ID != all[0].ID || len(one.Rows) != 2 || one.Pick.Name != all[0].Pick.Name || len(one.Rows[0].Columns) == 0 {
			t.Errorf("%s: got %+v", id, one)
		}
	}
}

func TestMetricsAreInTheTextFormat(t *testing.T) {
	b := newBench(t)
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: "routerd_test_total", Help: "A test's."})
	b.reg.MustRegister(c)
	c.Inc()
	a := b.call(t, "GET", "/metrics", nil)
	if a.status != http.StatusOK || !strings.Contains(a.body, "\nrouterd_test_total 1\n") || !strings.HasPrefix(a.header.Get("Content-Type"), "text/plain; version=0.0.4") {
		t.Errorf("got %+v", a)
	}
}

func TestReadinessSaysWhyNot(t *testing.T) {
	b := newBench(t)
	b.callWith(t, "GET", "/readyz", nil, "").into(t, http.StatusOK, nil)
	b.setReady(errors.New("draining"))
	b.callWith(t, "GET", "/readyz", nil, "").refused(t, http.StatusServiceUnavailable, "unavailable", "draining")
	b.callWith(t, "GET", "/healthz", nil, "").into(t, http.StatusOK, nil)
}

func TestTheDescriptionCoversTheTable(t *testing.T) {
	b := newBench(t)
	var doc struct {
		OpenAPI string
		Paths   map[string]map[string]struct {
			Summary     string
			OperationID string `json:"operationId"`
			Responses   map[string]any
		}
	}
	b.call(t, "GET", "/openapi.json", nil).into(t, http.StatusOK, &doc)
	if doc.OpenAPI != "3.1.0" {
		t.Errorf("version %q", doc.OpenAPI)
	}
	ids := map[string]bool{}
	for _, r := range admin.Routes(false) {
		op, ok := doc.Paths[strings.ReplaceAll(r.Pattern, "{ref}", "{id}")][strings.ToLower(r.Method)]
		if !ok || op.Summary != r.Doc || len(op.Responses) < 2 || ids[op.OperationID] {
			t.Errorf("%s %s: got %+v", r.Method, r.Pattern, op)
		}
		ids[op.OperationID] = true
	}
	text, err := json.Marshal(admin.OpenAPI(true))
	if err != nil || !strings.Contains(string(text), `"E_FUEL"`) {
		t.Errorf("the codes are missing, %v", err)
	}
}
