package engine_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/routerd/routerd/catalog"
	"github.com/routerd/routerd/catalog/engine"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/sim"
	"github.com/routerd/routerd/sim/simtest"
)

// home is a loopback address of this process and face, where fixed ports are free.
func home(face int) string {
	return fmt.Sprintf("127.%d.%d.%d", 100+os.Getpid()>>8%100, os.Getpid()%256, 1+face)
}

func TestEachFaceIsUnderstoodOverHTTP(t *testing.T) {
	for i, c := range []struct {
		face   sim.Face
		hint   string
		ranks  int
		want   catalog.Facts
		untold string
	}{
		{sim.FaceVLLM09, "", 1, catalog.Facts{Engine: "vllm", Version: "0.9.2", DPSize: 1, TotalKVBlocks: 500}, "kv_events max_batched_tokens replay"},
		{sim.FaceVLLM09, "", 2, catalog.Facts{Engine: "vllm", Version: "0.9.2"}, "dp_size kv_events max_batched_tokens replay total_kv_blocks"},
		{sim.FaceVLLM033, "", 2, catalog.Facts{Engine: "vllm", Version: "0.33.0", DPSize: 2, TotalKVBlocks: 500}, "max_batched_tokens"},
		{sim.FaceDefault, "", 1, catalog.Facts{Engine: "vllm", Version: "0.33.0", DPSize: 1, TotalKVBlocks: 500}, "max_batched_tokens"},
		{sim.FaceSGLang0510, "", 2, catalog.Facts{Engine: "sglang", Version: "0.5.10", DPSize: 2, TotalKVBlocks: 500, MaxBatchedTokens: 3000}, "load_reports"},
		{sim.FaceSGLang0523, "", 2, catalog.Facts{Engine: "sglang", Version: "0.5.23", DPSize: 2, TotalKVBlocks: 500, MaxBatchedTokens: 3000}, ""},
		{sim.FaceLLMD, "llm-d", 1, catalog.Facts{Engine: "llm-d", DPSize: 1, TotalKVBlocks: 500}, "kv_events max_batched_tokens replay version"},
		{sim.FaceLLMD, "", 1, catalog.Facts{Engine: "vllm", DPSize: 1, TotalKVBlocks: 500}, "kv_events max_batched_tokens replay version"},
		{sim.FaceTensorRTLLM, "", 1, catalog.Facts{Engine: "trtllm", Version: "1.0.0", TotalKVBlocks: 500}, "dp_size kv_events max_batched_tokens replay"},
	} {
		t.Run(fmt.Sprintf("%s with %d ranks", c.face, c.ranks), func(t *testing.T) {
			host := home(i)
			e := simtest.Start(t, func(s *sim.Config) {
				s.Face, s.Ranks, s.BlockSize, s.Blocks, s.MaxBatchedTokens = c.face, c.ranks, 32, 500, 3000
				s.Model, s.Adapters, s.Listen = "org/m", []string{"a", "b"}, host+":0"
				s.EventsListen, s.ReplayListen = "tcp://"+host+":5557", "tcp://"+host+":5567"
				if c.face == sim.FaceSGLang0523 {
					s.LoadListen = "tcp://" + host + ":5577"
				}
			})
			got, err := engine.New(engine.Options{}).Ask(context.Background(), fleet.Record{URL: e.URL(), Engine: c.hint})
			if err != nil {
				t.Fatal(err)
			}
			c.want.Models, c.want.BlockSize = []string{"org/m"}, 32
			if c.face != sim.FaceTensorRTLLM {
				c.want.Adapters = []fleet.Adapter{{Name: "a"}, {Name: "b"}}
			}
			if c.want.Engine == "sglang" || c.want.Version == "0.33.0" {
				c.want.KVEvents, c.want.Replay = e.EventEndpoints(), e.ReplayEndpoints()
			}
			c.want.LoadReports = e.LoadEndpoints()
			if diff := cmp.Diff(c.want, got, cmpopts.IgnoreFields(catalog.Facts{}, "Untold"), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
			if diff := cmp.Diff(c.untold, fields(got.Untold)); diff != "" {
				t.Errorf("untold: -want +got\n%s\n%q", diff, got.Untold)
			}
		})
	}
}
