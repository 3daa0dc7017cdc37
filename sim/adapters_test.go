package sim_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/sim"
)

func startUpdatable(t *testing.T, change func(*sim.Config)) *bench {
	t.Helper()
	return startEngine(t, func(c *sim.Config) {
		c.AdapterUpdates = true
		if change != nil {
			change(c)
		}
	})
}

// listed are the adapters of GET /v1/models, each as name=root.
func (b *bench) listed() []string {
	b.t.Helper()
	list := []string{}
	for _, card := range b.ok("GET", "/v1/models", "")["data"].([]any) {
		if c := card.(map[string]any); c["parent"] != nil {
			list = append(list, fmt.Sprint(c["id"], "=", c["root"]))
		}
	}
	return list
}

func (b *bench) wantListed(want ...string) {
	b.t.Helper()
	if diff := cmp.Diff(append([]string{}, want...), b.listed()); diff != "" {
		b.t.Errorf("adapters listed (-want +got):\n%s", diff)
	}
}

// wantError checks an answer in vLLM's form of errors.
func (b *bench) wantError(path, body string, status int, kind string) {
	b.t.Helper()
	got, raw := b.do("POST", path, body)
	var v struct{ Error struct{ Type string } }
	if err := json.Unmarshal(raw, &v); err != nil || got != status || v.Error.Type != kind {
		b.t.Errorf("%s %s: %d %s (%v), want %d %s", path, body, got, raw, err, status, kind)
	}
}

func (b *bench) serves(model string) bool {
	b.t.Helper()
	status, _ := b.do("POST", "/v1/completions", `{"model":"`+model+`","prompt":"x","max_tokens":1}`)
	if status != http.StatusOK && status != http.StatusNotFound {
		b.t.Fatalf("status %d", status)
	}
	return status == http.StatusOK
}

func TestAdaptersAreLoadedAndUnloadedAsByVLLM(t *testing.T) {
	b := startUpdatable(t, func(c *sim.Config) { c.Adapters = []string{"built-in"} })
	if b.serves("sql") {
		t.Error("an adapter that is not loaded is served")
	}
	status, raw := b.do("POST", "/v1/load_lora_adapter", `{"lora_name":"sql","lora_path":"/lora/sql"}`)
	if status != 200 || string(raw) != "Success: LoRA adapter 'sql' added successfully." {
		t.Errorf("load: %d %s", status, raw)
	}
	b.wantListed("built-in=/adapters/built-in", "sql=/lora/sql")
	if !b.serves("sql") {
		t.Error("a loaded adapter is not served")
	}
	b.wantError("/v1/load_lora_adapter", `{"lora_name":"sql","lora_path":"/lora/sql"}`, 400, "InvalidUserInput")
	b.wantError("/v1/load_lora_adapter", `{"lora_name":"sql"}`, 400, "InvalidUserInput")
	b.wantError("/v1/load_lora_adapter", `{"lora_name":"sim-model","lora_path":"/x"}`, 400, "InvalidUserInput")
	b.wantError("/v1/load_lora_adapter", `{"lora_name":"a b","lora_path":"/x"}`, 400, "InvalidUserInput")
	b.wantError("/v1/load_lora_adapter", `{`, 400, "BadRequestError")
	b.wantError("/v1/unload_lora_adapter", `{"lora_name":"ghost"}`, 404, "NotFoundError")
	b.wantError("/v1/unload_lora_adapter", `{}`, 400, "InvalidUserInput")

	status, raw = b.do("POST", "/v1/unload_lora_adapter", `{"lora_name":"sql"}`)
	if status != 200 || string(raw) != "Success: LoRA adapter 'sql' removed successfully." {
		t.Errorf("unload: %d %s", status, raw)
	}
	b.wantListed("built-in=/adapters/built-in")
	if b.serves("sql") {
		t.Error("an unloaded adapter is served")
	}
}

func TestAdaptersAreLoadedAndUnloadedAsBySGLang(t *testing.T) {
	b := startUpdatable(t, func(c *sim.Config) { c.MaxAdapters = 1 })
	for _, step := range []struct {
		path, body string
		status     int
		success    bool
		loaded     map[string]any
	}{
		{"/load_lora_adapter", `{"lora_name":"a","lora_path":"/lora/a","pinned":false}`, 200, true, map[string]any{"a": "/lora/a"}},
		{"/load_lora_adapter", `{"lora_name":"a","lora_path":"/lora/a"}`, 400, false, map[string]any{"a": "/lora/a"}},
		{"/load_lora_adapter", `{"lora_name":"b","lora_path":"/lora/b"}`, 400, false, map[string]any{"a": "/lora/a"}},
		{"/unload_lora_adapter", `{"lora_name":"b"}`, 400, false, map[string]any{"a": "/lora/a"}},
		{"/unload_lora_adapter", `{"lora_name":"a"}`, 200, true, map[string]any{}},
		{"/load_lora_adapter", `{"lora_name":"b","lora_path":"/lora/b"}`, 200, true, map[string]any{"b": "/lora/b"}},
	} {
		status, raw := b.do("POST", step.path, step.body)
		var v map[string]any
		if err := json.Unmarshal(raw, &v); err != nil {
			t.Fatal(err)
		}
		if status != step.status || v["success"] != step.success || (v["error_message"] == "") != step.success {
			t.Errorf("%s %s: %d %s", step.path, step.body, status, raw)
		}
		if diff := cmp.Diff(step.loaded, v["loaded_adapters"]); diff != "" {
			t.Errorf("%s %s (-want +got):\n%s", step.path, step.body, diff)
		}
	}
}

func TestAdapterRoutesAreThereOnlyWhenSwitchedOn(t *testing.T) {
	b := startEngine(t, nil)
	for _, path := range []string{"/v1/load_lora_adapter", "/v1/unload_lora_adapter", "/load_lora_adapter", "/unload_lora_adapter"} {
		b.wantError(path, `{"lora_name":"a","lora_path":"/a"}`, 404, "NotFoundError")
	}
}

func TestALoadTakesItsTimeAndOutlivesItsClient(t *testing.T) {
	b := startUpdatable(t, func(c *sim.Config) { c.AdapterLoad = time.Second })
	begun := time.Now()
	answer := make(chan error, 1)
	go func() {
		resp, err := b.trySend(context.Background(), "POST", "/v1/load_lora_adapter", `{"lora_name":"a","lora_path":"/a"}`)
		if err == nil {
			err = resp.Body.Close()
		}
		answer <- err
	}()
	brief, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if resp, err := b.trySend(brief, "POST", "/v1/load_lora_adapter", `{"lora_name":"b","lora_path":"/b"}`); err == nil {
		resp.Body.Close()
		t.Errorf("the load was answered with %d before its time", resp.StatusCode)
	}
	if b.serves("a") || b.serves("b") {
		t.Error("served while it is being loaded")
	}
	b.wantError("/v1/load_lora_adapter", `{"lora_name":"b","lora_path":"/b"}`, 400, "InvalidUserInput")
	if err := <-answer; err != nil {
		t.Error(err)
	}
	if took := time.Since(begun); took < time.Second {
		t.Errorf("loaded in %s", took)
	}
	eventually(t, "b is loaded though its client has left", func() bool { return len(b.listed()) == 2 })
}

func TestARestartForgetsWhatWasLoadedByAPI(t *testing.T) {
	b := startUpdatable(t, func(c *sim.Config) { c.Adapters, c.AdapterLoad = []string{"built-in"}, 20*time.Millisecond })
	b.do("POST", "/v1/load_lora_adapter", `{"lora_name":"a","lora_path":"/a"}`)
	b.do("POST", "/v1/unload_lora_adapter", `{"lora_name":"built-in"}`)
	b.wantListed("a=/a")
	b.ok("POST", "/sim/restart", "")
	b.wantListed("built-in=/adapters/built-in")
}

func TestAnUnloadUnderARunningRequestIsCounted(t *testing.T) {
	b := startUpdatable(t, func(c *sim.Config) { c.Adapters, c.DecodePerToken = []string{"a", "b"}, 5*time.Millisecond })
	s := b.stream(t.Context(), "/v1/completions", `{"model":"a","prompt":"x","max_tokens":30,"ignore_eos":true,"stream":true}`)
	if _, err := s.next(); err != nil {
		t.Fatal(err)
	}
	b.do("POST", "/v1/unload_lora_adapter", `{"lora_name":"b"}`)
	b.do("POST", "/v1/unload_lora_adapter", `{"lora_name":"a"}`)
	if got := b.ok("GET", "/sim/stats", "")["unloaded_in_use"]; got != float64(1) {
		t.Errorf("unloaded in use: %v, want 1", got)
	}
	if list, err := s.rest(); err != nil || !slices.ContainsFunc(list, func(d string) bool { return strings.Contains(d, "[DONE]") }) {
		t.Errorf("the running request did not get to its end: %v", err)
	}
}

func TestAdapterSettingsOutOfRangeNameTheField(t *testing.T) {
	c := sim.DefaultConfig()
	c.MaxAdapters, c.AdapterLoad = -1, -time.Second
	if err := c.Validate(); err == nil || !strings.Contains(err.Error(), "max-adapters") || !strings.Contains(err.Error(), "adapter-load") {
		t.Errorf("%v", err)
	}
}

func TestEventsNumberAnAdapterThatWasLoadedByAPI(t *testing.T) {
	b := eventEngine(t, func(c *sim.Config) { c.AdapterUpdates, c.Adapters = true, []string{"sql"} })
	load := func() { b.do("POST", "/v1/load_lora_adapter", `{"lora_name":"late","lora_path":"/late"}`) }
	load()
	b.do("POST", "/v1/unload_lora_adapter", `{"lora_name":"late"}`)
	load() // once more: it gets another number
	b.ok("POST", "/v1/completions", `{"model":"late","prompt":[1,2,3,4,5,6,7,8],"max_tokens":1}`)
	r := newReader(t, b.EventEndpoints()[0])
	list, _ := r.replay(b.ReplayEndpoints()[0], 0, true, 5*time.Second)
	if len(list) != 1 || list[0].batch.events[0].Adapter != "late" || list[0].batch.ids["late"] != 3 {
		t.Errorf("published %+v", list)
	}
}
