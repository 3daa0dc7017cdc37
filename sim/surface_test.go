package sim_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/sim"
)

func TestModelsHaveTheShapeOfVLLM(t *testing.T) {
	b := startEngine(t, func(c *sim.Config) { c.Model, c.Adapters = "org/base-model", []string{"sql-adapter"} })
	want, err := os.ReadFile("testdata/models_vllm.json")
	if err != nil {
		t.Fatal(err)
	}
	_, got := b.do("GET", "/v1/models", "")
	if g, w := shape(t, string(got)), shape(t, string(want)); g != w {
		t.Errorf("shape\n got %s\nwant %s", g, w)
	}
	card := b.ok("GET", "/v1/models/sql-adapter", "")
	if card["parent"] != "org/base-model" || card["root"] != "/adapters/sql-adapter" || card["max_model_len"] != nil {
		t.Errorf("adapter card %v", card)
	}
	if base := b.ok("GET", "/v1/models/org/base-model", ""); base["id"] != "org/base-model" || base["parent"] != nil {
		t.Errorf("base card %v", base)
	}
	if status, _ := b.do("GET", "/v1/models/nope", ""); status != 404 {
		t.Errorf("unknown model: status %d", status)
	}
}

func TestTokenizeAnswersTheIdsThatCompletionsUse(t *testing.T) {
	b := startEngine(t, nil)
	v := b.ok("POST", "/tokenize", `{"messages":[{"role":"user","content":[{"type":"text","text":"hi "},{"type":"image_url"},{"type":"text","text":"you"}]},{"role":"assistant","content":null}],"return_token_strs":true}`)
	text := "<|user|>hi you<|assistant|><|assistant|>"
	checkTokens(t, v, sim.Tokenize(text))
	if got := strings.Join(asStrings(v["token_strs"]), ""); got != text {
		t.Errorf("token_strs join to %q, want %q", got, text)
	}
	checkTokens(t, b.ok("POST", "/tokenize", `{"messages":[{"role":"user","content":"hi"}],"add_generation_prompt":false}`), sim.Tokenize("<|user|>hi"))
	checkTokens(t, b.ok("POST", "/tokenize", `{"messages":[{"role":"user","content":"hi"}],"continue_final_message":true}`), sim.Tokenize("<|user|>hi"))
	checkTokens(t, b.ok("POST", "/tokenize", `{"model":"sim-model","prompt":"plain text","add_special_tokens":true}`), sim.Tokenize("plain text"))
	checkTokens(t, b.ok("POST", "/tokenize", `{"prompt":""}`), []uint32{})

	raw, err := json.Marshal(map[string]any{"tokens": append(sim.Tokenize("plain text"), 3)})
	if err != nil {
		t.Fatal(err)
	}
	if got := b.ok("POST", "/detokenize", string(raw))["prompt"]; got != "plain text\uFFFD" {
		t.Errorf("detokenized %q", got)
	}
	if got := usageOf(b.ok("POST", "/v1/chat/completions", `{"messages":[{"role":"user","content":"hi you"}]}`))[0]; got != len(sim.Tokenize("<|user|>hi you<|assistant|>")) {
		t.Errorf("a chat's prompt_tokens %d differ from /tokenize", got)
	}
}

func checkTokens(t *testing.T, v map[string]any, want []uint32) {
	t.Helper()
	got := []uint32{}
	for _, n := range v["tokens"].([]any) {
		got = append(got, uint32(n.(float64)))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("tokens (-want +got):\n%s", diff)
	}
	if v["count"] != float64(len(want)) || v["max_model_len"] != float64(131072) {
		t.Errorf("count %v, max_model_len %v", v["count"], v["max_model_len"])
	}
}

func asStrings(v any) []string {
	var list []string
	for _, s := range v.([]any) {
		list = append(list, s.(string))
	}
	return list
}

func TestMetricsCarryVLLMsNames(t *testing.T) {
	b := startEngine(t, func(c *sim.Config) { c.Ranks, c.BlockSize, c.Blocks, c.Adapters = 2, 4, 8, []string{"sql"} })
	for range 2 {
		b.ok("POST", "/v1/completions", `{"prompt":[1,2,3,4,5,6,7,8,9],"max_tokens":1}`, "X-data-parallel-rank", "1")
	}
	_, raw := b.do("GET", "/metrics", "")
	for _, want := range []string{
		`vllm:num_requests_running{engine="0",model_name="sim-model"} 0`,
		`vllm:num_requests_waiting{engine="1",model_name="sim-model"} 0`,
		`vllm:kv_cache_usage_perc{engine="1",model_name="sim-model"} 0`,
		`vllm:cache_config_info{block_size="4",enable_prefix_caching="True",engine="1",num_gpu_blocks="16"} 1`,
		`vllm:prefix_cache_queries_total{engine="1",model_name="sim-model"} 18`,
		`vllm:prefix_cache_hits_total{engine="1",model_name="sim-model"} 8`,
		`vllm:lora_requests_info{max_lora="1",running_lora_adapters="",waiting_lora_adapters=""} 1.`,
	} {
		if !strings.Contains(string(raw), want) {
			t.Errorf("missing %s in\n%s", want, raw)
		}
	}
}

func TestHealthAndVersion(t *testing.T) {
	b := startEngine(t, func(c *sim.Config) { c.Name = "w3" })
	resp := b.send(t.Context(), "GET", "/health", "")
	resp.Body.Close()
	if resp.StatusCode != 200 || resp.Header.Get("X-Sim-Engine") != "w3" {
		t.Errorf("health: %d %v", resp.StatusCode, resp.Header)
	}
	if got := b.ok("GET", "/version", "")["version"]; got != "0.33.0" {
		t.Errorf("version %v", got)
	}
}

func TestBlocksListHashesByRankAndTier(t *testing.T) {
	b := startEngine(t, func(c *sim.Config) { c.Ranks, c.BlockSize = 2, 4 })
	b.ok("POST", "/v1/completions", `{"prompt":[1,2,3,4,5,6,7,8,9],"max_tokens":1}`, "X-data-parallel-rank", "1")
	_, raw := b.do("GET", "/sim/blocks", "")
	var got struct {
		Ranks []struct {
			Rank   int
			Hashes map[string][]string
		}
	}
	if err := json.Unmarshal(raw, &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Ranks) != 2 || len(got.Ranks[0].Hashes["device"]) != 0 || len(got.Ranks[1].Hashes["device"]) != 2 {
		t.Fatalf("blocks %s", raw)
	}
	if got := shape(t, string(raw)); got != "{ranks [{rank hashes {device []}}{rank hashes {device []}}]}" {
		t.Errorf("shape %s", got)
	}
}

func TestConfigNamesWhatIsWrong(t *testing.T) {
	for _, tc := range []struct {
		want   string
		change func(*sim.Config)
	}{
		{"name", func(c *sim.Config) { c.Name = "a b" }},
		{"model", func(c *sim.Config) { c.Model = "" }},
		{"adapter", func(c *sim.Config) { c.Adapters = []string{"x", "x"} }},
		{"adapter", func(c *sim.Config) { c.Adapters = []string{"sim-model"} }},
		{"adapter", func(c *sim.Config) { c.Adapters = []string{"a,b"} }},
		{"listen", func(c *sim.Config) { c.Listen = "8080" }},
		{"block-size 0", func(c *sim.Config) { c.BlockSize = 0 }},
		{"blocks -1", func(c *sim.Config) { c.Blocks = -1 }},
		{"ranks 65", func(c *sim.Config) { c.Ranks = 65 }},
		{"slots 0", func(c *sim.Config) { c.Slots = 0 }},
		{"max-model-len", func(c *sim.Config) { c.MaxModelLen = 0 }},
		{"answer-tokens", func(c *sim.Config) { c.AnswerTokens = -1 }},
		{"buffer-steps", func(c *sim.Config) { c.BufferSteps = 0 }},
		{"prefill-per-token -1s", func(c *sim.Config) { c.PrefillPerToken = -time.Second }},
		{"decode-per-token 2m", func(c *sim.Config) { c.DecodePerToken = 2 * time.Minute }},
		{"idle-timeout", func(c *sim.Config) { c.IdleTimeout = -1 }},
		{"event-form", func(c *sim.Config) { c.EventForm = "json" }},
		{"hash-form", func(c *sim.Config) { c.HashForm = "" }},
		{"kv-endpoint", func(c *sim.Config) { c.EventsListen = "ipc://x" }},
		{"kv-endpoint", func(c *sim.Config) { c.EventsListen = "tcp://127.0.0.1:0" }},
		{"replay-endpoint", func(c *sim.Config) { c.ReplayListen = "127.0.0.1:5" }},
		{"ports at least 2 apart", func(c *sim.Config) {
			c.Ranks, c.EventsListen, c.ReplayListen = 2, "tcp://127.0.0.1:5557", "tcp://127.0.0.1:5558"
		}},
	} {
		c := sim.DefaultConfig()
		tc.change(&c)
		_, err := sim.New(c, slog.New(slog.DiscardHandler))
		if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), "allowed: ") {
			t.Errorf("want an error that names %q and what is allowed, got %v", tc.want, err)
		}
	}
	if err := sim.DefaultConfig().Validate(); err != nil {
		t.Errorf("the defaults are refused: %v", err)
	}
}

func TestLifecycle(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	e, err := sim.New(sim.DefaultConfig(), log)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Close(); err != nil {
		t.Errorf("close before start: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	<-e.Ready()
	if err := e.Start(); err == nil {
		t.Error("a second start succeeded")
	}
	c := sim.DefaultConfig()
	c.Listen = strings.TrimPrefix(e.URL(), "http://")
	second, err := sim.New(c, log)
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Start(); err == nil || !strings.Contains(err.Error(), c.Listen) {
		t.Errorf("start on a taken address: %v", err)
	}
	c.Listen, c.EventsListen = "127.0.0.1:0", e.EventEndpoints()[0]
	third, err := sim.New(c, log)
	if err != nil {
		t.Fatal(err)
	}
	if err := third.Start(); err == nil || !strings.Contains(err.Error(), "kv-endpoint of rank 0") {
		t.Errorf("start on a taken event address: %v", err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("run: %v", err)
	}
	if err := e.Close(); err != nil {
		t.Errorf("second close: %v", err)
	}
}

func TestCloseEndsConnectionsThatSendNothing(t *testing.T) {
	b := startEngine(t, nil)
	c, err := net.Dial("tcp", strings.TrimPrefix(b.URL(), "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	b.ok("GET", "/version", "") // the connection before it was accepted
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if err := c.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil || isTimeout(err) {
		t.Errorf("silent connection after close: %d bytes, %v", n, err)
	}
}

func TestH6_IdleConnectionsAreClosedAfterTheIdleTimeout(t *testing.T) {
	b := startEngine(t, func(c *sim.Config) { c.IdleTimeout = 50 * time.Millisecond })
	c, err := net.Dial("tcp", strings.TrimPrefix(b.URL(), "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte("GET /health HTTP/1.1\r\nHost: x\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	if err := c.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
		t.Fatal(err)
	}
	buf, total := make([]byte, 4096), 0
	for {
		n, err := c.Read(buf)
		total += n
		if err != nil {
			if isTimeout(err) || total == 0 {
				t.Errorf("after %d bytes: %v", total, err)
			}
			return
		}
	}
}

func isTimeout(err error) bool {
	var ne net.Error
	return errors.As(err, &ne) && ne.Timeout()
}
