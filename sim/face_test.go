package sim_test

import (
	"encoding/binary"
	"encoding/hex"
	"strings"
	"testing"
	"time"

	"github.com/routerd/routerd/sim"
)

func TestAFaceChangesWhichRoutesExist(t *testing.T) {
	routes := []string{"/v1/models", "/version", "/server_info", "/get_server_info", "/kv_event_sources", "/metrics", "/health"}
	for face, want := range map[sim.Face]string{
		sim.FaceDefault:     "1100111",
		sim.FaceVLLM09:      "1100011",
		sim.FaceVLLM033:     "1100111",
		sim.FaceSGLang0510:  "1011011",
		sim.FaceSGLang0523:  "1011011",
		sim.FaceLLMD:        "1000011",
		sim.FaceTensorRTLLM: "1100011",
	} {
		b := startEngine(t, func(c *sim.Config) { c.Face = face })
		var got strings.Builder
		for _, route := range routes {
			status, _ := b.do("GET", route, "")
			got.WriteByte("01"[min(200/status, 1)])
		}
		if got.String() != want {
			t.Errorf("face %q: got %s, want %s of %q", face, got.String(), want, routes)
		}
		if v := b.ok("POST", "/v1/completions", `{"prompt":"q","max_tokens":1}`); v["usage"] == nil {
			t.Errorf("face %q: completion %v", face, v)
		}
	}
}

func TestAFaceCarriesItsOwnMetrics(t *testing.T) {
	for _, c := range []struct {
		face  sim.Face
		ranks int
		want  []string
		not   string
	}{
		{sim.FaceVLLM09, 2, []string{`vllm:gpu_cache_usage_perc{engine="1",model_name="sim-model"} 0`, `engine="1",num_gpu_blocks="16"} 1`}, `engine="0"`},
		{sim.FaceVLLM033, 2, []string{`engine="0",num_gpu_blocks="16"} 1`, `engine="1",num_gpu_blocks="16"} 1`}, "gpu_cache_usage_perc"},
		{sim.FaceLLMD, 1, []string{`vllm:cache_config_info{block_size="4",num_gpu_blocks="8"} 1`, `vllm:num_requests_running{model_name="sim-model"} 0`}, "engine="},
		{sim.FaceSGLang0510, 1, []string{`sglang:cache_config_info{num_pages="8",page_size="4"} 1`, `sglang:num_running_reqs{dp_rank="0",`}, "vllm:"},
		{sim.FaceSGLang0523, 1, []string{`sglang:page_size{dp_rank="0",engine_type="unified",model_name="sim-model",pp_rank="0",tp_rank="0"} 4`, `sglang:max_total_num_tokens{`}, "cache_config_info"},
		{sim.FaceSGLang0510, 2, []string{`sglang:num_running_reqs{dp_rank="0",`, `sglang:num_running_reqs{dp_rank="1",`, `pp_rank="0",tp_rank="1"} 32`}, "page_size{"},
		{sim.FaceSGLang0523, 2, []string{`sglang:page_size{dp_rank="1",`, `sglang:max_total_num_tokens{dp_rank="0",engine_type="unified",model_name="sim-model",pp_rank="0",tp_rank="0"} 32`}, "vllm:"},
		{sim.FaceTensorRTLLM, 2, []string{`"kvCacheStats":{"maxNumBlocks":8,"freeNumBlocks":8,"usedNumBlocks":0,"tokensPerBlock":4}`}, "vllm:"},
		{sim.FaceTensorRTLLM, 1, []string{`"kvCacheStats":{"maxNumBlocks":8,"freeNumBlocks":8,"usedNumBlocks":0,"tokensPerBlock":4}`}, "vllm:"},
	} {
		b := startEngine(t, func(s *sim.Config) { s.Face, s.Ranks, s.BlockSize, s.Blocks = c.face, c.ranks, 4, 8 })
		_, raw := b.do("GET", "/metrics", "")
		for _, want := range c.want {
			if !strings.Contains(string(raw), want) {
				t.Errorf("face %s: missing %s in\n%s", c.face, want, raw)
			}
		}
		if strings.Contains(string(raw), c.not) {
			t.Errorf("face %s: %s in\n%s", c.face, c.not, raw)
		}
	}
}

func TestTheLoadSocketSendsThreeFramesAtAChangeAndAtAHeartbeat(t *testing.T) {
	b := startEngine(t, func(c *sim.Config) {
		c.Events, c.Face, c.LoadListen, c.BlockSize, c.Blocks, c.Slots = true, sim.FaceSGLang0523, "tcp://127.0.0.1:*", 4, 8, 3
	})
	r := newReader(t, b.LoadEndpoints()[0])
	r.must(r.sub.SetRcvtimeo(10 * time.Second))
	idle := "9b" + "a8" + hex.EncodeToString([]byte("LoadStat")) + "0000" + "0020" + "00" + "00" + "00" + "03" + "0000"
	var last uint64
	for i := range 2 {
		frames, err := r.sub.RecvMessageBytes(0)
		r.must(err)
		if len(frames) != 3 || string(frames[0]) != "load" || len(frames[1]) != 8 || hex.EncodeToString(frames[2]) != idle {
			t.Fatalf("got %q, want the payload %s", frames, idle)
		}
		seq := binary.BigEndian.Uint64(frames[1])
		if i > 0 && seq != last+1 {
			t.Errorf("number %d follows %d", seq, last)
		}
		last = seq
	}
	b.ok("POST", "/sim/faults", `{"kind":"stall","after_chunks":1}`)
	s := b.stream(t.Context(), "/v1/completions", longStream)
	if _, err := s.next(); err != nil {
		t.Fatal(err)
	}
	for {
		frames, err := r.sub.RecvMessageBytes(0)
		r.must(err)
		if frames[2][10] == 1 { // running
			break
		}
	}
	b.ok("DELETE", "/sim/faults", "")
}

func TestFacesRefuseWhatTheirEnginesCouldNotSay(t *testing.T) {
	for field, change := range map[string]func(*sim.Config){
		"face":               func(c *sim.Config) { c.Face = "ollama" },
		"ranks":              func(c *sim.Config) { c.Face, c.Ranks = sim.FaceLLMD, 2 },
		"kv-endpoint":        func(c *sim.Config) { c.Face, c.Ranks = sim.FaceSGLang0510, 2 },
		"load-endpoint":      func(c *sim.Config) { c.LoadListen = "tcp://127.0.0.1:*" },
		"max-batched-tokens": func(c *sim.Config) { c.MaxBatchedTokens = 0 },
	} {
		c := sim.DefaultConfig()
		change(&c)
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), field) || !strings.Contains(err.Error(), "allowed") {
			t.Errorf("%s: got %v", field, err)
		}
	}
	c := sim.DefaultConfig()
	c.Face, c.EventsListen, c.ReplayListen, c.LoadListen = sim.FaceSGLang0523, "tcp://127.0.0.1:5557", "tcp://127.0.0.1:5567", "tcp://127.0.0.1:5557"
	if err := c.Validate(); err == nil || !strings.Contains(err.Error(), "load-endpoint") {
		t.Errorf("ports that meet: got %v", err)
	}
}
