package engine_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/routerd/routerd/catalog"
	"github.com/routerd/routerd/catalog/engine"
	"github.com/routerd/routerd/fleet"
)

// replay serves files as the routes that they come from.
func replay(t *testing.T, files map[string]string) *httptest.Server {
	t.Helper()
	bodies := map[string][]byte{}
	for route, file := range files {
		body, err := os.ReadFile(filepath.Join("testdata", file))
		if err != nil {
			t.Fatal(err)
		}
		bodies[route] = body
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, ok := bodies[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write(body)
	}))
	t.Cleanup(s.Close)
	return s
}

// routes are the files of a folder of answers by route.
func routes(t *testing.T, folder string) map[string]string {
	t.Helper()
	files := map[string]string{}
	for route, name := range map[string]string{
		"/v1/models": "v1_models.json", "/version": "version.json", "/server_info": "server_info.json",
		"/get_server_info": "get_server_info.json", "/kv_event_sources": "kv_event_sources.json", "/metrics": "metrics.txt",
	} {
		file := filepath.Join("answers", folder, name)
		if _, err := os.Stat(filepath.Join("testdata", file)); err == nil {
			files[route] = file
		}
	}
	if len(files) < 3 {
		t.Fatalf("%s has %d answers", folder, len(files))
	}
	return files
}

// ask asks what the server replays, as from rec.
func ask(t *testing.T, s *httptest.Server, rec fleet.Record) catalog.Facts {
	t.Helper()
	rec.URL = s.URL
	facts, err := engine.New(engine.Options{}).Ask(context.Background(), rec)
	if err != nil {
		t.Fatal(err)
	}
	return facts
}

// fields are the first words of what is untold.
func fields(untold []string) string {
	var names []string
	for _, u := range untold {
		name, _, _ := strings.Cut(u, ":")
		names = append(names, name)
	}
	return strings.Join(names, " ")
}

func TestEachReleaseTellsWhatItsOwnCodeAnswers(t *testing.T) {
	adapters := []fleet.Adapter{{Name: "chat-adapter"}, {Name: "sql-adapter"}}
	ports := func(base int) map[int]string {
		return map[int]string{0: "tcp://127.0.0.1:" + strconv.Itoa(base), 1: "tcp://127.0.0.1:" + strconv.Itoa(base+1)}
	}
	vllm := catalog.Facts{Engine: "vllm", Models: []string{"base-model"}, Adapters: adapters, BlockSize: 16, TotalKVBlocks: 20000, DPSize: 2}
	last := vllm // 0.9 shows its last rank only
	last.TotalKVBlocks, last.DPSize = 0, 0
	newest := vllm
	newest.KVEvents, newest.Replay = ports(5557), ports(5567)
	old := catalog.Facts{
		Engine: "sglang", Models: []string{"base-model"}, BlockSize: 64, TotalKVBlocks: 5000, MaxBatchedTokens: 16384, DPSize: 2,
		KVEvents: ports(5557), Replay: ports(5567),
	}
	adapted := old
	adapted.Adapters = adapters
	described := adapted
	described.Replay = nil
	latest := adapted
	latest.LoadReports = ports(5577)
	for folder, c := range map[string]struct {
		want   catalog.Facts
		untold string
	}{
		"vllm-0.9.0":    {last, "dp_size kv_events max_batched_tokens replay total_kv_blocks"},
		"vllm-0.9.2":    {last, "dp_size kv_events max_batched_tokens replay total_kv_blocks"},
		"vllm-0.10.2":   {vllm, "kv_events max_batched_tokens replay"},
		"vllm-0.11.2":   {vllm, "kv_events max_batched_tokens replay"},
		"vllm-0.14.0":   {vllm, "kv_events max_batched_tokens replay"},
		"vllm-0.18.0":   {vllm, "kv_events max_batched_tokens replay"},
		"vllm-0.24.0":   {vllm, "kv_events max_batched_tokens replay"},
		"vllm-0.30.0":   {vllm, "kv_events max_batched_tokens replay"},
		"vllm-0.33.0":   {newest, "max_batched_tokens"},
		"sglang-0.4.7":  {old, "load_reports"},
		"sglang-0.5.4":  {old, "load_reports"},
		"sglang-0.5.10": {adapted, "load_reports"},
		"sglang-0.5.15": {described, "load_reports replay"},
		"sglang-0.5.18": {described, "load_reports replay"},
		"sglang-0.5.23": {latest, ""},
	} {
		t.Run(folder, func(t *testing.T) {
			_, c.want.Version, _ = strings.Cut(folder, "-")
			got := ask(t, replay(t, routes(t, folder)), fleet.Record{})
			if diff := cmp.Diff(c.want, got, cmpopts.IgnoreFields(catalog.Facts{}, "Untold"), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
			if diff := cmp.Diff(c.untold, fields(got.Untold)); diff != "" {
				t.Errorf("untold: -want +got\n%s%s", diff, strings.Join(got.Untold, "\n"))
			}
		})
	}
}

func TestWhatIsUntoldNamesThePlaceAndTheWayOut(t *testing.T) {
	got := ask(t, replay(t, routes(t, "vllm-0.24.0")), fleet.Record{})
	want := []string{
		"kv_events: /kv_event_sources: status 404; vLLM tells from 0.33 on",
		"max_batched_tokens: /server_info: status 404; vLLM tells it in its developer mode only (VLLM_SERVER_DEV_MODE=1)",
		"replay: /kv_event_sources: status 404; vLLM tells from 0.33 on",
	}
	if diff := cmp.Diff(want, got.Untold); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestVLLMsDeveloperModeTellsTheRest(t *testing.T) {
	for _, folder := range []string{"vllm-0.24.0", "vllm-0.30.0", "vllm-0.33.0"} {
		files := routes(t, folder)
		files["/server_info"] = filepath.Join("answers", folder, "server_info_developer_mode.json")
		delete(files, "/kv_event_sources")
		got := ask(t, replay(t, files), fleet.Record{})
		if got.MaxBatchedTokens != 8192 || got.KVEvents[1] != "tcp://127.0.0.1:5558" || got.Replay[1] != "tcp://127.0.0.1:5568" || len(got.Untold) > 0 {
			t.Errorf("%s: got %+v", folder, got)
		}
	}
}

func TestSGLangWithoutServerInfoStillTellsByItsMetrics(t *testing.T) {
	files := routes(t, "sglang-0.5.23")
	delete(files, "/server_info")
	got := ask(t, replay(t, files), fleet.Record{})
	if got.Engine != "sglang" || got.BlockSize != 64 || got.TotalKVBlocks != 5000 || got.DPSize != 2 {
		t.Errorf("got %+v", got)
	}
	if want := "kv_events load_reports max_batched_tokens replay version"; fields(got.Untold) != want {
		t.Errorf("untold: got %q, want %q", fields(got.Untold), want)
	}
}

func TestFreePortsAreTakenAsTheyWereBound(t *testing.T) {
	files := routes(t, "vllm-0.33.0")
	files["/kv_event_sources"] = "answers/vllm-0.33.0/kv_event_sources_free_ports.json"
	got := ask(t, replay(t, files), fleet.Record{})
	want := map[int]string{0: "tcp://10.0.0.7:41000", 1: "tcp://10.0.0.7:41010"}
	if diff := cmp.Diff(want, got.KVEvents); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestTheSharedFixturesAreUnderstood(t *testing.T) {
	adapters := []fleet.Adapter{{Name: "sql-adapter"}}
	for name, c := range map[string]struct {
		files map[string]string
		want  catalog.Facts
	}{
		"vLLM 0.33": {
			map[string]string{"/v1/models": "models_vllm.json", "/metrics": "metrics_vllm_0_33.txt"},
			catalog.Facts{Engine: "vllm", Models: []string{"base-model"}, Adapters: adapters, BlockSize: 16, TotalKVBlocks: 20000, DPSize: 1},
		},
		"vLLM 0.33, two ranks": {
			map[string]string{"/v1/models": "models_vllm.json", "/kv_event_sources": "kv_event_sources_vllm_0_33.json"},
			catalog.Facts{
				Engine: "vllm", Models: []string{"base-model"}, Adapters: adapters, DPSize: 2,
				KVEvents: map[int]string{0: "tcp://127.0.0.1:5557", 1: "tcp://127.0.0.1:5558"},
				Replay:   map[int]string{0: "tcp://127.0.0.1:5558", 1: "tcp://127.0.0.1:5559"},
			},
		},
		"vLLM 0.9": {
			map[string]string{"/v1/models": "models_vllm.json", "/metrics": "metrics_vllm_0_9.txt"},
			catalog.Facts{Engine: "vllm", Models: []string{"base-model"}, Adapters: adapters},
		},
		"SGLang, the part about events": {
			map[string]string{"/v1/models": "models_sglang.json", "/metrics": "metrics_sglang.txt", "/server_info": "server_info_sglang_kv_events.json"},
			catalog.Facts{
				Engine: "sglang", Models: []string{"base-model"}, Adapters: adapters, BlockSize: 64, DPSize: 2,
				KVEvents:    map[int]string{0: "tcp://127.0.0.1:5557", 1: "tcp://127.0.0.1:5558"},
				Replay:      map[int]string{0: "tcp://127.0.0.1:5559", 1: "tcp://127.0.0.1:5560"},
				LoadReports: map[int]string{0: "tcp://127.0.0.1:5561", 1: "tcp://127.0.0.1:5562"},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			for route, file := range c.files {
				c.files[route] = "openai/" + file
			}
			got := ask(t, replay(t, c.files), fleet.Record{})
			if diff := cmp.Diff(c.want, got, cmpopts.IgnoreFields(catalog.Facts{}, "Untold"), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("-want +got\n%s\n%s", diff, strings.Join(got.Untold, "\n"))
			}
		})
	}
}
