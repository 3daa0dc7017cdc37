package admin_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/admin"
	"github.com/routerd/routerd/admin/admintest"
	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/fleet"
)

type workerAnswer struct {
	ID        uint64
	Name, URL string
	Model     string
	Source    string
	Lifecycle string
	Reasons   []string
	BlockSize int `json:"block_size"`
}

func TestAWorkerIsPutListedAndDeletedByIDOrName(t *testing.T) {
	b := newBench(t)
	var got workerAnswer
	b.call(t, "PUT", "/v1/workers/7", `{"name":"seven","url":"http://127.0.0.1:8001/","model":"m"}`).into(t, http.StatusCreated, &got)
	want := workerAnswer{ID: 7, Name: "seven", URL: "http://127.0.0.1:8001", Model: "m", Source: "api", Lifecycle: "ready", Reasons: []string{}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	// The same worker by its name keeps its id; the record is replaced whole.
	b.call(t, "PUT", "/v1/workers/seven", `{"url":"http://127.0.0.1:8002","model":"m"}`).into(t, http.StatusOK, &got)
	if got.ID != 7 || got.URL != "http://127.0.0.1:8002" {
		t.Errorf("got %+v", got)
	}
	b.call(t, "PUT", "/v1/workers/eight", `{"url":"http://127.0.0.1:8003","model":"m"}`).into(t, http.StatusCreated, &got)
	if got.ID != uint64(fleet.IDFromName("eight")) {
		t.Errorf("got id %d", got.ID)
	}
	b.call(t, "PUT", "/v1/workers/9", `{"url":"http://127.0.0.1:8004","model":"m"}`).into(t, http.StatusCreated, &got)
	if got.Name != "9" || got.ID != 9 {
		t.Errorf("got %+v", got)
	}
	b.call(t, "PUT", "/v1/workers/9", `{"name":"9","url":"http://127.0.0.1:8004","model":"m"}`).into(t, http.StatusOK, &got)
	b.call(t, "PUT", "/v1/workers/11", `{"name":"11","url":"http://127.0.0.1:8006","model":"m"}`).into(t, http.StatusCreated, &got)
	b.call(t, "DELETE", "/v1/workers/11", nil)
	b.call(t, "PUT", "/v1/workers/rack%2Ften", `{"url":"http://127.0.0.1:8005","model":"m"}`).into(t, http.StatusCreated, &got)
	if got.Name != "rack/ten" {
		t.Errorf("got %+v", got)
	}
	for _, ref := range []string{"7", "seven"} {
		b.call(t, "GET", "/v1/workers/"+ref, nil).into(t, http.StatusOK, &got)
		if got.ID != 7 {
			t.Errorf("%s: got %+v", ref, got)
		}
	}
	for _, ref := range []string{"seven", "9", "rack%2Ften"} {
		if a := b.call(t, "DELETE", "/v1/workers/"+ref, nil); a.status != http.StatusNoContent {
			t.Errorf("delete %s: %+v", ref, a)
		}
	}
	var list struct{ Workers []workerAnswer }
	b.call(t, "GET", "/v1/workers", nil).into(t, http.StatusOK, &list)
	if len(list.Workers) != 1 || list.Workers[0].Name != "eight" {
		t.Errorf("left: %+v", list.Workers)
	}
}

// rankedWorkers shows workers whose only rank is at work on something.
type rankedWorkers struct{ admintest.PlainWorkers }

func (r rankedWorkers) Worker(ref string) (admin.Worker, bool) {
	w, ok := r.PlainWorkers.Worker(ref)
	w.Ranks = []admin.WorkerRank{{Load: core.LoadView{ActiveRequests: 3}, CachedBlocks: map[string]int{"device": 5}, Trusted: true}}
	return w, ok
}

func TestAWorkerThatIsPutIsAnsweredAsItIsShown(t *testing.T) {
	b := newBench(t, func(_ *admin.Config, p *admin.Parts) { p.Workers = rankedWorkers{p.Workers.(admintest.PlainWorkers)} })
	for _, status := range []int{http.StatusCreated, http.StatusOK} {
		put := b.call(t, "PUT", "/v1/workers/w1", `{"url":"http://127.0.0.1:8001","model":"m"}`)
		shown := b.call(t, "GET", "/v1/workers/w1", nil)
		if diff := cmp.Diff(shown.body, put.body); put.status != status || diff != "" {
			t.Errorf("status %d, want %d; the answer (-shown +put)\n%s", put.status, status, diff)
		}
	}
}

func TestAWorkerOfAnySourceDrains(t *testing.T) {
	b := newBench(t)
	b.call(t, "PUT", "/v1/workers/1", `{"url":"http://127.0.0.1:18000","model":"m","block_size":16}`).into(t, http.StatusCreated, nil)
	var v struct {
		Lifecycle  string     `json:"lifecycle"`
		DrainUntil *time.Time `json:"drain_until"`
	}
	for body, most := range map[string]time.Duration{`{"timeout":"1h"}`: time.Hour, "": 10 * time.Minute, "{}": 10 * time.Minute} {
		b.call(t, "POST", "/v1/workers/1/drain", body).into(t, http.StatusOK, &v)
		if v.Lifecycle != "draining" || v.DrainUntil == nil || time.Until(*v.DrainUntil) > most || time.Until(*v.DrainUntil) < most-time.Minute {
			t.Errorf("%q: got %+v", body, v)
		}
	}
	for body, item := range map[string]string{`{"timeout":"25h"}`: "timeout", `{"timeout":"soon"}`: "timeout", `{"timeout":5}`: "timeout", `{"limit":"1s"}`: "limit"} {
		b.call(t, "POST", "/v1/workers/1/drain", body).refused(t, http.StatusBadRequest, "invalid", item)
	}
	b.call(t, "POST", "/v1/workers/9/drain", "").refused(t, http.StatusNotFound, "not_found", "")
	v.DrainUntil = nil
	b.call(t, "DELETE", "/v1/workers/1/drain", nil).into(t, http.StatusOK, &v)
	if v.DrainUntil != nil {
		t.Errorf("after the end: %+v", v)
	}
	b.call(t, "DELETE", "/v1/workers/9/drain", nil).refused(t, http.StatusNotFound, "not_found", "")
	if a := b.call(t, "GET", "/v1/sources", nil); a.status != http.StatusOK || a.body != "{\"sources\":[]}\n" {
		t.Errorf("got %d %s", a.status, a.body)
	}
}

func TestM1_ASecondWorkerOnOneEndpointIsAConflict(t *testing.T) {
	b := newBench(t)
	b.call(t, "PUT", "/v1/workers/1", `{"url":"http://127.0.0.1:18000"}`).into(t, http.StatusCreated, nil)
	b.call(t, "PUT", "/v1/workers/1", `{"url":"HTTP://127.0.0.1:18000/"}`).into(t, http.StatusOK, nil)
	a := b.call(t, "PUT", "/v1/workers/2", `{"url":"http://127.0.0.1:18000"}`)
	a.refused(t, http.StatusConflict, "conflict", "url")
	var list struct{ Workers []workerAnswer }
	b.call(t, "GET", "/v1/workers", nil).into(t, http.StatusOK, &list)
	if len(list.Workers) != 1 || list.Workers[0].URL != "http://127.0.0.1:18000" {
		t.Errorf("got %+v", list.Workers)
	}
}

func TestAWrongWorkerNamesTheField(t *testing.T) {
	b := newBench(t)
	for _, c := range []struct{ ref, body, item string }{
		{"1", ``, "body"},
		{"1", `null`, "body"},
		{"1", `{"url":"http://127.0.0.1:1","nam":"x"}`, "nam"},
		{"1", `{"URL":"http://127.0.0.1:1"}`, "URL"},
		{"1", `{"url":"http://127.0.0.1:1","url":"http://127.0.0.1:2"}`, "url"},
		{"1", `{"url":1}`, "url"},
		{"1", `{"url":"https://127.0.0.1:1"}`, "url"},
		{"1", `{"url":"http://::1:8001"}`, "url"},
		{"1", `{}`, "url"},
		{"1", `{"url":"http://127.0.0.1:1","id":2}`, "id"},
		{"1", `{"url":"http://127.0.0.1:1","id":"two"}`, "id"},
		{"1", `{"url":"http://127.0.0.1:1","id":-1}`, "id"},
		{"w1", `{"url":"http://127.0.0.1:1","name":"w2"}`, "name"},
		{"0", `{"url":"http://127.0.0.1:1"}`, "name"},
		{"1", `{"url":"http://127.0.0.1:1","block_size":"16"}`, "block_size"},
		{"1", `{"url":"http://127.0.0.1:1","block_size":-1}`, "block_size"},
		{"1", `{"url":"http://127.0.0.1:1","dp_size":5000}`, "dp_size"},
		{"1", `{"url":"http://127.0.0.1:1","dp_size":1,"kv_events":{"3":"tcp://127.0.0.1:5"}}`, "kv_events"},
		{"1", `{"url":"http://127.0.0.1:1","kv_events":{"a":"tcp://127.0.0.1:5"}}`, "kv_events.a"},
		{"1", `{"url":"http://127.0.0.1:1","kv_events":{"0":"tcp://127.0.0.1:5","00":"tcp://127.0.0.1:6"}}`, "kv_events.00"},
		{"1", `{"url":"http://127.0.0.1:1","kv_events":["tcp://127.0.0.1:5"]}`, "kv_events"},
		{"1", `{"url":"http://127.0.0.1:1","adapters":[{"name":"a","Id":1}]}`, "adapters[0].Id"},
		{"1", `{"url":"http://127.0.0.1:1","adapters":[{"name":5}]}`, "adapters"},
		{"1", `{"url":"http://127.0.0.1:1","labels":{"a":1}}`, "labels"},
		{"1", `{"url":"http://127.0.0.1:1","taints":"a"}`, "taints"},
		{"7", `{"name":"9","url":"http://127.0.0.1:1"}`, "name"},
		{"00009", `{"name":"00009","url":"http://127.0.0.1:1"}`, "name"},
		{"9", `{"name":"9","id":7,"url":"http://127.0.0.1:1"}`, "name"},
		{"99999999999999999999", `{"url":"http://127.0.0.1:1"}`, "name"},
		{"%00", `{"url":"http://127.0.0.1:1"}`, "name"},
		{strings.Repeat("n", 257), `{"url":"http://127.0.0.1:1"}`, "name"},
		{"", `{"url":"http://127.0.0.1:1"}`, "name"},
	} {
		a := b.call(t, "PUT", "/v1/workers/"+c.ref, c.body)
		f := a.failure(t)
		if a.status != http.StatusBadRequest || f.Code != "invalid" || !strings.HasPrefix(f.Details.Item, c.item) || f.Details.Allowed == "" {
			t.Errorf("%s %s: got %d %s", c.ref, c.body, a.status, a.body)
		}
	}
	if a := b.call(t, "GET", "/v1/workers", nil); a.body != "{\"workers\":[]}\n" {
		t.Errorf("a refused worker is there: %s", a.body)
	}
}

func TestWorkersSurviveARestart(t *testing.T) {
	b := newBench(t)
	b.worker(t, fleet.Record{Name: "w1", URL: "http://127.0.0.1:9"})
	again := &bench{dir: b.dir}
	p := again.parts(t)
	if v, ok := p.Workers.Worker("w1"); !ok || v.URL != "http://127.0.0.1:9" {
		t.Errorf("got %+v", v)
	}
}
