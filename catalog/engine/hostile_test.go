package engine_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/routerd/routerd/catalog"
	"github.com/routerd/routerd/catalog/engine"
	"github.com/routerd/routerd/fleet"
)

func TestMain(m *testing.M) {
	// The simulated engines' HTTP server keeps the date for the life of the process.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"))
}

// says serves texts by route.
func says(t *testing.T, bodies map[string]string) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, ok := bodies[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(s.Close)
	return s
}

const vllmModels = `{"data":[{"id":"m","owned_by":"vllm","parent":null,"max_model_len":8192}]}`

func TestNobodyThereIsAnErrorWithoutTheURL(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	_, err = engine.New(engine.Options{}).Ask(context.Background(), fleet.Record{URL: "http://" + address + "/secret-path"})
	if err == nil || strings.Contains(err.Error(), "secret-path") {
		t.Errorf("got %v", err)
	}
	if _, err = engine.New(engine.Options{}).Ask(context.Background(), fleet.Record{}); err == nil {
		t.Error("a record without a URL was asked")
	}
}

func TestASilentEngineIsGivenUpInTime(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	asked := time.Now()
	_, err = engine.New(engine.Options{Timeout: 50 * time.Millisecond}).Ask(context.Background(), fleet.Record{URL: "http://" + l.Addr().String()})
	if err == nil || !strings.Contains(err.Error(), "no answer in time") {
		t.Errorf("got %v", err)
	}
	if took := time.Since(asked); took > 2*time.Second {
		t.Errorf("it took %s", took)
	}
}

func TestAnyAnswerIsAnAnswer(t *testing.T) {
	got := ask(t, says(t, nil), fleet.Record{})
	if got.Engine != "" || len(got.Models) != 0 || !strings.Contains(strings.Join(got.Untold, "\n"), "model: /v1/models: status 404") {
		t.Errorf("got %+v", got)
	}
}

func TestARedirectIsNotFollowed(t *testing.T) {
	followed := make(chan struct{}, 16)
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { followed <- struct{}{} }))
	defer other.Close()
	s := httptest.NewServer(http.RedirectHandler(other.URL+"/v1/models", http.StatusFound))
	defer s.Close()
	got := ask(t, s, fleet.Record{})
	if len(followed) > 0 || len(got.Models) > 0 {
		t.Errorf("followed %d times, got %+v", len(followed), got)
	}
}

func TestValuesOutOfRangeCountAsUntold(t *testing.T) {
	config := func(labels string) map[string]string {
		return map[string]string{"/v1/models": vllmModels, "/metrics": "vllm:cache_config_info{" + labels + "} 1\n"}
	}
	sglang := func(info string) map[string]string {
		return map[string]string{"/v1/models": `{"data":[{"id":"m","owned_by":"sglang"}]}`, "/server_info": info}
	}
	for name, c := range map[string]struct {
		bodies map[string]string
		untold string
	}{
		"block size None":                 {config(`block_size="None",engine="0",num_gpu_blocks="5"`), "block_size"},
		"block size 0":                    {config(`block_size="0",engine="0",num_gpu_blocks="5"`), "block_size"},
		"block size too large":            {config(`block_size="1048577",engine="0",num_gpu_blocks="5"`), "block_size"},
		"blocks None":                     {config(`block_size="16",engine="0",num_gpu_blocks="None"`), "total_kv_blocks"},
		"blocks too many":                 {config(`block_size="16",engine="0",num_gpu_blocks="99999999999"`), "total_kv_blocks"},
		"blocks negative":                 {config(`block_size="16",engine="0",num_gpu_blocks="-4"`), "total_kv_blocks"},
		"page size a text":                {sglang(`{"version":"1","page_size":"x","max_total_num_tokens":640}`), "block_size"},
		"page size a fraction":            {sglang(`{"version":"1","page_size":1.5,"max_total_num_tokens":640}`), "block_size"},
		"tokens beyond all":               {sglang(`{"version":"1","page_size":1,"max_total_num_tokens":1e300}`), "total_kv_blocks"},
		"more ranks than allowed":         {sglang(`{"version":"1","page_size":1,"max_total_num_tokens":64,"dp_size":4097}`), "dp_size"},
		"prefill 0":                       {sglang(`{"version":"1","page_size":1,"max_total_num_tokens":64,"max_prefill_tokens":0}`), "max_batched_tokens"},
		"a version of control characters": {map[string]string{"/v1/models": vllmModels, "/version": `{"version":"\u0007"}`}, "version"},
		"a name of control characters":    {map[string]string{"/v1/models": `{"data":[{"id":"a\nb","owned_by":"vllm"}]}`}, "model"},
	} {
		t.Run(name, func(t *testing.T) {
			got := ask(t, says(t, c.bodies), fleet.Record{})
			if !strings.Contains(" "+fields(got.Untold)+" ", " "+c.untold+" ") {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func TestEndpointsBecomeReachable(t *testing.T) {
	ranks := func(endpoint string) map[string]string {
		return map[string]string{"/v1/models": vllmModels, "/kv_event_sources": `{"0":{"publisher":"zmq","endpoint":"` + endpoint + `"}}`}
	}
	for endpoint, want := range map[string]string{
		"tcp://*:5557":         "tcp://127.0.0.1:5557",
		"tcp://0.0.0.0:5557":   "tcp://127.0.0.1:5557",
		"tcp://[::]:5557":      "tcp://127.0.0.1:5557",
		"tcp://:::5557":        "tcp://127.0.0.1:5557",
		"tcp://10.0.0.7:5557":  "tcp://10.0.0.7:5557",
		"tcp://[fd00::7]:5557": "tcp://[fd00::7]:5557",
		"ipc:///tmp/kv":        "ipc:///tmp/kv",
		"tcp://*:0":            "",
		"tcp://*:*":            "",
		"tcp://*:70000":        "",
		"tcp://h;x:5557":       "",
		"inproc://kv":          "",
		"nonsense":             "",
	} {
		got := ask(t, says(t, ranks(endpoint)), fleet.Record{})
		if got.KVEvents[0] != want {
			t.Errorf("%s: got %q, want %q", endpoint, got.KVEvents[0], want)
		}
		if told := !strings.Contains(fields(got.Untold), "kv_events"); told != (want != "") {
			t.Errorf("%s: untold %q", endpoint, got.Untold)
		}
	}
}

func TestM2_AWildcardBecomesTheURLsIPv6Host(t *testing.T) {
	l, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(says(t, map[string]string{"/kv_event_sources": `{"0":{"publisher":"zmq","endpoint":"tcp://*:5601"}}`}).Config.Handler)
	s.Listener = l
	s.Start()
	defer s.Close()
	got, err := engine.New(engine.Options{}).Ask(context.Background(), fleet.Record{URL: "http://" + l.Addr().String()})
	if err != nil || got.KVEvents[0] != "tcp://[::1]:5601" {
		t.Errorf("got %v, %v", got.KVEvents, err)
	}
}

func TestRanksThatTheRecordHasNotAreLeftOut(t *testing.T) {
	bodies := map[string]string{
		"/v1/models": vllmModels, "/metrics": "vllm:cache_config_info{block_size=\"16\",engine=\"3\",num_gpu_blocks=\"5\"} 1\n",
		"/kv_event_sources": `{"3":{"publisher":"zmq","endpoint":"tcp://*:5560"}}`,
	}
	got := ask(t, says(t, bodies), fleet.Record{})
	if got.DPSize != 1 || len(got.KVEvents) != 0 || !strings.Contains(strings.Join(got.Untold, "\n"), "kv_events: rank 3 is none of the 1 from dp_start 0 on") {
		t.Errorf("got %+v", got)
	}
	got = ask(t, says(t, bodies), fleet.Record{DPStart: 3})
	if got.DPSize != 1 || got.KVEvents[3] != "tcp://127.0.0.1:5560" {
		t.Errorf("with dp_start 3: got %+v", got)
	}
}

// The catalog compares facts to learn whether an engine is another one.
func TestTheSameAnswersGiveTheSameFacts(t *testing.T) {
	for name, body := range map[string]string{
		"several ranks that are not the worker's": `{"5":{"endpoint":"tcp://*:1"},"6":{"endpoint":"tcp://*:2"},"7":{"endpoint":"tcp://*:3"}}`,
		"several endpoints that nobody reaches":   `{"0":{"endpoint":"a","replay_endpoint":"a"},"1":{"endpoint":"b","replay_endpoint":"b"},"2":{"endpoint":"c","replay_endpoint":"c"}}`,
		"one rank written in several ways":        `{"0":{"endpoint":"tcp://*:1"},"00":{"endpoint":"tcp://*:2"},"+0":{"endpoint":"tcp://*:3"}}`,
	} {
		t.Run(name, func(t *testing.T) {
			want := engine.FactsOf([]byte(body))
			for range 50 {
				if diff := cmp.Diff(want, engine.FactsOf([]byte(body))); diff != "" {
					t.Fatalf("-first +later\n%s", diff)
				}
			}
		})
	}
}

func TestACardThatNoRecordCanHaveCostsNoOther(t *testing.T) {
	for name, id := range map[string]string{
		"cut in a letter": "b\xc3", "no UTF-8": "\xff", "a control character": `a\u007fb`, "too long": strings.Repeat("x", 257), "empty": "",
	} {
		t.Run(name, func(t *testing.T) {
			got := ask(t, says(t, map[string]string{"/v1/models": `{"data":[{"id":"` + id + `","owned_by":"vllm"},{"id":"m","owned_by":"vllm"},` +
				`{"id":"` + id + `","parent":"m"},{"id":"sql","parent":"m"}]}`}), fleet.Record{})
			checkFacts(t, got)
			if diff := cmp.Diff([]fleet.Adapter{{Name: "sql"}}, got.Adapters); diff != "" || len(got.Models) != 1 {
				t.Errorf("models %q, -want +got\n%s", got.Models, diff)
			}
		})
	}
}

// The port that this end of a connection had is another one each time.
func TestBrokenConnectionsReadTheSameEachTime(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/models" {
			_, _ = io.WriteString(w, vllmModels)
			return
		}
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0) // a reset, not an end
		}
		_ = conn.Close()
	}))
	defer s.Close()
	want := ask(t, s, fleet.Record{})
	if !strings.Contains(strings.Join(want.Untold, "\n"), "reset") {
		t.Errorf("got %q", want.Untold)
	}
	if diff := cmp.Diff(want, ask(t, s, fleet.Record{})); diff != "" {
		t.Errorf("-first +later\n%s", diff)
	}
}

func TestTensorRTsStatisticsAreLeftToOthersWhereTheRecordSaysThem(t *testing.T) {
	var read atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/metrics":
			read.Add(1)
			_, _ = io.WriteString(w, `[{"kvCacheStats":{"maxNumBlocks":500,"tokensPerBlock":32}}]`)
		case "/v1/models":
			_, _ = io.WriteString(w, `{"data":[{"id":"m","owned_by":"tensorrt_llm"}]}`)
		default:
			http.NotFound(w, r)
		}
	}))
	defer s.Close()
	for _, c := range []struct {
		rec  fleet.Record
		want int32
	}{
		{fleet.Record{Engine: "trtllm", BlockSize: 32, TotalKVBlocks: 500}, 0},
		{fleet.Record{Engine: "trtllm", BlockSize: 32}, 1},
		{fleet.Record{Engine: "trtllm", TotalKVBlocks: 500}, 1},
		{fleet.Record{BlockSize: 32, TotalKVBlocks: 500}, 1},
		{fleet.Record{Engine: "vllm", BlockSize: 32, TotalKVBlocks: 500}, 1},
	} {
		read.Store(0)
		got := ask(t, s, c.rec)
		if n := read.Load(); n != c.want || got.Engine != "trtllm" || (got.BlockSize == 32) != (n > 0) {
			t.Errorf("%+v: read %d times, want %d; %+v", c.rec, n, c.want, got)
		}
	}
}

func TestTheDeveloperModesOlderTextIsNotRead(t *testing.T) {
	got := ask(t, says(t, map[string]string{"/v1/models": vllmModels, "/server_info": `{"vllm_config":"model='m', seed=0"}`}), fleet.Record{})
	if got.Engine != "vllm" || got.MaxBatchedTokens != 0 {
		t.Errorf("got %+v", got)
	}
}

func TestEndlessAndDeepBodiesAreSurvived(t *testing.T) {
	for name, body := range map[string]string{
		"endless": strings.Repeat("x", 9<<20), "deep": strings.Repeat("[", 1<<20), "deep object": strings.Repeat(`{"data":`, 1<<18),
		"binary": "\x00\xff\xfe\x89PNG", "an array": "[1,2,3]", "a number": "7", "null": "null",
		"one line of samples": "vllm:cache_config_info{" + strings.Repeat("a", 2<<20),
		"many samples":        strings.Repeat("vllm:cache_config_info{engine=\"0\"} 1\n", 1<<17),
	} {
		t.Run(name, func(t *testing.T) {
			all := map[string]string{}
			for _, route := range []string{"/v1/models", "/version", "/server_info", "/get_server_info", "/kv_event_sources", "/metrics"} {
				all[route] = body
			}
			got := ask(t, says(t, all), fleet.Record{})
			if got.BlockSize != 0 || len(got.KVEvents) != 0 || len(got.Models) != 0 || len(strings.Join(got.Untold, "")) > 8<<10 {
				t.Errorf("got %.500s", fmt.Sprint(got))
			}
		})
	}
}

// FuzzAnyAnswerGivesFactsInRange serves one body at all places: whatever it holds,
// the facts can stand in a record.
func FuzzAnyAnswerGivesFactsInRange(f *testing.F) {
	files, err := filepath.Glob("testdata/*/*/*")
	if err != nil {
		f.Fatal(err)
	}
	shared, err := filepath.Glob("testdata/openai/*")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range append(files, shared...) {
		if body, err := os.ReadFile(file); err == nil {
			f.Add(body)
		}
	}
	f.Add([]byte(`{"kv_events":{"endpoint_host":"::","endpoint_port_base":65535,"dp_size":4096,"block_size":1}}`))
	f.Add([]byte("{\"data\":[{\"id\":\"m\"},{\"id\":\"b\xc3\",\"parent\":\"m\"}]}"))
	f.Add([]byte(`[{"kvCacheStats":{"maxNumBlocks":-1,"tokensPerBlock":1e9}},{}]`))
	f.Add([]byte(`{"vllm_config":{"kv_events_config":{"endpoint":"tcp://*:1"}},"0":{"endpoint":"ipc://"}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		checkFacts(t, engine.FactsOf(body))
	})
}

func checkFacts(t *testing.T, got catalog.Facts) {
	t.Helper()
	rec := fleet.Record{
		ID: 1, URL: "http://h:1", Engine: got.Engine, BlockSize: got.BlockSize, TotalKVBlocks: got.TotalKVBlocks,
		MaxBatchedTokens: got.MaxBatchedTokens, DPSize: got.DPSize, KVEvents: got.KVEvents, Replay: got.Replay, Adapters: got.Adapters,
	}
	if len(got.Models) > 0 {
		rec.Model = got.Models[0]
	}
	if _, err := rec.Normalised(); err != nil {
		t.Errorf("the facts make no record: %v", err)
	}
}
