package scrape_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/catalog/scrape"
	"github.com/routerd/routerd/core/load"
	"github.com/routerd/routerd/fleet"
)

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func read(t testing.TB, metrics string, change func(*fleet.Record)) scrape.Read {
	t.Helper()
	r := record(1, "http://127.0.0.1:1")
	if change != nil {
		change(&r)
	}
	got, err := scrape.ReadMetrics(strings.NewReader(metrics), r, noon)
	must(t, err)
	return got
}

func TestMetricsOfEachEngineBecomeReports(t *testing.T) {
	for _, c := range []struct {
		name, metrics string
		change        func(*fleet.Record)
		want          map[uint32]load.Report
	}{
		{"vLLM 0.33", fixture(t, "openai/metrics_vllm_0_33.txt"), nil, map[uint32]load.Report{
			0: {At: noon, Queued: 7, Running: 3, KVUsed: -1, KVTotal: 20000, KVUsage: 0.42},
		}},
		{"vLLM 0.9", fixture(t, "openai/metrics_vllm_0_9.txt"), nil, map[uint32]load.Report{
			0: {At: noon, Queued: 7, Running: 3, KVUsed: -1, KVTotal: -1, KVUsage: 0.42},
		}},
		{"SGLang without a page size", fixture(t, "openai/metrics_sglang.txt"), func(r *fleet.Record) { r.BlockSize = 0 }, map[uint32]load.Report{
			0: {At: noon, Queued: 7, Running: 3, KVUsed: -1, KVTotal: -1, KVUsage: 0.42},
		}},
		{"SGLang with the record's block size", fixture(t, "openai/metrics_sglang.txt"), func(r *fleet.Record) { r.BlockSize = 64 }, map[uint32]load.Report{
			0: {At: noon, Queued: 7, Running: 3, KVUsed: -1, KVTotal: 5000, KVUsage: 0.42},
		}},
		{
			"SGLang with its own page size and DP attention", `
sglang:num_running_reqs{dp_rank="0",model_name="m"} 1
sglang:num_running_reqs{dp_rank="1",model_name="m"} 2
sglang:num_queue_reqs{dp_rank="0",model_name="m"} 3
sglang:num_queue_reqs{dp_rank="1",model_name="m"} 4
sglang:num_used_tokens{dp_rank="0",model_name="m"} 65
sglang:num_used_tokens{dp_rank="1",model_name="m"} 128
sglang:max_total_num_tokens{model_name="m"} 6400
sglang:page_size{model_name="m"} 64
`, func(r *fleet.Record) { r.DPSize = 2 }, map[uint32]load.Report{
				0: {At: noon, Queued: 3, Running: 1, KVUsed: 2, KVTotal: 100, KVUsage: 65.0 / 6400},
				1: {At: noon, Queued: 4, Running: 2, KVUsed: 2, KVTotal: 100, KVUsage: 0.02},
			},
		},
		{
			"TensorRT-LLM", `
trtllm_num_requests_running{model_name="m"} 5.0
trtllm_num_requests_waiting{model_name="m"} 3.0
trtllm_kv_cache_max_blocks{model_name="m"} 1000.0
trtllm_kv_cache_used_blocks{model_name="m"} 600.0
trtllm_kv_cache_utilization{model_name="m"} 0.6
`, nil, map[uint32]load.Report{
				0: {At: noon, Queued: 3, Running: 5, KVUsed: 600, KVTotal: 1000, KVUsage: 0.6},
			},
		},
		{
			"ranks that begin above 0", `
vllm:num_requests_running{engine="2"} 1
vllm:num_requests_running{engine="3"} 2
vllm:cache_config_info{engine="2",num_gpu_blocks="10"} 1
vllm:cache_config_info{engine="3",num_gpu_blocks="None"} 1
`, func(r *fleet.Record) { r.DPStart, r.DPSize = 2, 2 }, map[uint32]load.Report{
				2: {At: noon, Queued: -1, Running: 1, KVUsed: -1, KVTotal: -1, KVUsage: -1},
				3: {At: noon, Queued: -1, Running: 2, KVUsed: -1, KVTotal: -1, KVUsage: -1},
			},
		},
		{
			"the only rank under another number", "vllm:num_requests_running{engine=\"0\"} 4\n",
			func(r *fleet.Record) { r.DPStart = 3 },
			map[uint32]load.Report{
				3: {At: noon, Queued: -1, Running: 4, KVUsed: -1, KVTotal: -1, KVUsage: -1},
			},
		},
		{
			"one of several ranks for a worker of one", "vllm:num_requests_running{engine=\"1\"} 4\nvllm:num_requests_running{engine=\"0\"} 5\n",
			nil,
			map[uint32]load.Report{
				0: {At: noon, Queued: -1, Running: 5, KVUsed: -1, KVTotal: -1, KVUsage: -1},
			},
		},
		{
			"two for one rank: the larger", "vllm:num_requests_running{pid=\"1\"} 4\nvllm:num_requests_running{pid=\"2\"} 1\n",
			nil,
			map[uint32]load.Report{
				0: {At: noon, Queued: -1, Running: 4, KVUsed: -1, KVTotal: -1, KVUsage: -1},
			},
		},
		{
			"escapes, blanks and times", `vllm:num_requests_running{ a="x\"},\\" , engine="0", }   2  1764000000` + "\r\n",
			nil,
			map[uint32]load.Report{
				0: {At: noon, Queued: -1, Running: 2, KVUsed: -1, KVTotal: -1, KVUsage: -1},
			},
		},
		{"only a total", "vllm:cache_config_info{num_gpu_blocks=\"10\"} 1\n", nil, map[uint32]load.Report{}},
		{"a last line that may be cut off", "vllm:num_requests_running 1\nvllm:num_requests_waiting 1", nil, map[uint32]load.Report{
			0: {At: noon, Queued: -1, Running: 1, KVUsed: -1, KVTotal: -1, KVUsage: -1},
		}},
		{"names that only begin alike", "vllm:num_requests_running_total 3\nvllm:num_requests_waiting_by_reason{reason=\"capacity\"} 3\nvllm: 1\nvllm:\n", nil, map[uint32]load.Report{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := read(t, c.metrics, c.change)
			if diff := cmp.Diff(c.want, got.Reports); diff != "" {
				t.Error(diff)
			}
			if got.Refused != 0 || got.Strange != 0 && c.name != "one of several ranks for a worker of one" {
				t.Errorf("%d refused, %d of strange ranks", got.Refused, got.Strange)
			}
		})
	}
}

// TestMetricsOfEachReleaseAreKnown reads what the releases' own code wrote for an idle
// engine of two ranks.
func TestMetricsOfEachReleaseAreKnown(t *testing.T) {
	idle := load.Report{At: noon, Queued: 0, Running: 0, KVUsed: -1, KVTotal: 20000, KVUsage: 0} // vLLM writes the sum, 40000
	both := map[uint32]load.Report{0: idle, 1: idle}
	last := idle
	last.KVTotal = -1
	sized := load.Report{At: noon, Queued: 0, Running: 0, KVUsed: 0, KVTotal: 5000, KVUsage: 0}
	small := sized // that do not tell how many tokens there is room for
	small.KVTotal = -1
	for release, want := range map[string]map[uint32]load.Report{
		"vllm-0.9.0":  {1: last}, // its second rank's metrics replace the first one's
		"vllm-0.9.2":  {1: last},
		"vllm-0.10.2": both,
		"vllm-0.11.2": both,
		"vllm-0.14.0": both,
		"vllm-0.18.0": both,
		"vllm-0.24.0": both,
		"vllm-0.30.0": both,
		"vllm-0.33.0": both,

		"sglang-0.4.7":  {0: small}, // made with one rank
		"sglang-0.5.4":  {0: small, 1: small},
		"sglang-0.5.10": {0: sized, 1: sized},
		"sglang-0.5.15": {0: sized, 1: sized},
		"sglang-0.5.18": {0: sized, 1: sized},
		"sglang-0.5.23": {0: sized, 1: sized},
	} {
		t.Run(release, func(t *testing.T) {
			ranks := 2
			if release == "sglang-0.4.7" {
				ranks = 1
			}
			got := read(t, fixture(t, "answers/"+release+"/metrics.txt"), func(r *fleet.Record) { r.DPSize = ranks })
			if diff := cmp.Diff(want, got.Reports); diff != "" {
				t.Error(diff)
			}
			if got.Refused+got.Strange != 0 {
				t.Errorf("%d refused, %d of strange ranks", got.Refused, got.Strange)
			}
		})
	}
}

func TestValuesThatNobodyCanBelieveAreUnknownAndCounted(t *testing.T) {
	for _, v := range []string{"NaN", "-1", "+Inf", "-Inf", "1e300", "x", "", "0x", "1e999"} {
		t.Run(v, func(t *testing.T) {
			got := read(t, "vllm:num_requests_waiting{engine=\"0\"} 2\nvllm:num_requests_running{engine=\"0\"} "+v+
				"\nvllm:kv_cache_usage_perc{engine=\"0\"} "+v+"\n", nil)
			want := map[uint32]load.Report{0: {At: noon, Queued: 2, Running: -1, KVUsed: -1, KVTotal: -1, KVUsage: -1}}
			if diff := cmp.Diff(want, got.Reports); diff != "" {
				t.Error(diff)
			}
			if got.Refused != 2 {
				t.Errorf("%d refused; want 2", got.Refused)
			}
		})
	}
	for usage, want := range map[string]float64{"1": 1, "1.004": 1, "1.5": -1, "42": -1, "0": 0} {
		got := read(t, "vllm:num_requests_running 1\nvllm:kv_cache_usage_perc "+usage+"\n", nil)
		if got.Reports[0].KVUsage != want {
			t.Errorf("usage %s: got %v, want %v", usage, got.Reports[0].KVUsage, want)
		}
	}
	broken := read(t, "vllm:num_requests_running{engine=\"0} 1\nvllm:num_requests_running{engine} 1\nvllm:num_requests_running{\nvllm:num_requests_running{engine=\"0\"}\n", nil)
	if len(broken.Reports) != 0 || broken.Refused != 4 {
		t.Errorf("got %+v", broken)
	}
}

func TestARankThatCannotBeToldGetsNoReport(t *testing.T) {
	two := func(r *fleet.Record) { r.DPSize = 2 }
	got := read(t, "vllm:num_requests_running 5\nvllm:num_requests_running{engine=\"7\"} 5\nvllm:num_requests_running{engine=\"-1\"} 5\n", two)
	if len(got.Reports) != 0 || got.Strange != 3 {
		t.Errorf("got %+v", got)
	}
	several := read(t, "vllm:num_requests_running{engine=\"7\"} 5\nvllm:num_requests_running{engine=\"8\"} 5\n", nil)
	if len(several.Reports) != 0 || several.Strange == 0 {
		t.Errorf("got %+v", several)
	}
}

func TestLinesOfAnyLengthAreSurvived(t *testing.T) {
	long := strings.Repeat("x", 200<<10)
	got := read(t, long+"\nvllm:num_requests_running{engine=\"0\"} 1\nvllm:num_requests_waiting{a=\""+long+"\"} 9\nvllm:kv_cache_usage_perc 0.5\n"+long, nil)
	want := map[uint32]load.Report{0: {At: noon, Queued: -1, Running: 1, KVUsed: -1, KVTotal: -1, KVUsage: 0.5}}
	if diff := cmp.Diff(want, got.Reports); diff != "" {
		t.Error(diff)
	}
	if got.Refused != 1 {
		t.Errorf("%d refused; want 1", got.Refused)
	}
}

func TestTheNewestSampleOfAdaptersInUseCounts(t *testing.T) {
	got := read(t, `vllm:lora_requests_info{max_lora="4",running_lora_adapters="old",waiting_lora_adapters="older"} 1.764e+09
vllm:lora_requests_info{max_lora="4",running_lora_adapters="sql, chat",waiting_lora_adapters="fine"} 1.7640001e+09
vllm:lora_requests_info{max_lora="4",running_lora_adapters="oldest",waiting_lora_adapters=""} 1.763e+09
vllm:lora_requests_info{max_lora="4",running_lora_adapters="never",waiting_lora_adapters=""} NaN
`, nil)
	if diff := cmp.Diff([]string{"sql", "chat", "fine"}, got.Lora); diff != "" {
		t.Error(diff)
	}
	if got := read(t, fixture(t, "openai/metrics_vllm_0_33.txt"), nil); fmt.Sprint(got.Lora) != "[sql-adapter chat-adapter]" {
		t.Errorf("got %v", got.Lora)
	}
}

func FuzzMetrics(f *testing.F) {
	for _, name := range []string{"openai/metrics_vllm_0_33.txt", "openai/metrics_vllm_0_9.txt", "openai/metrics_sglang.txt"} {
		f.Add(fixture(f, name), uint8(1))
	}
	f.Add("vllm:num_requests_running{engine=\"1\\\"\",} NaN 1\n", uint8(2))
	f.Add("sglang:page_size 0\nsglang:num_used_tokens 1\n", uint8(0))
	f.Fuzz(func(t *testing.T, metrics string, ranks uint8) {
		r := record(1, "http://127.0.0.1:1")
		r.DPSize = int(ranks)
		got, err := scrape.ReadMetrics(strings.NewReader(metrics), r, noon)
		if err != nil {
			t.Fatal(err)
		}
		for rank, report := range got.Reports {
			if rank >= uint32(ranks) {
				t.Errorf("rank %d of %d", rank, ranks)
			}
			for _, n := range []int64{report.Queued, report.Running, report.KVUsed, report.KVTotal} {
				if n < -1 || n > 1<<40 {
					t.Errorf("%+v", report)
				}
			}
			if !(report.KVUsage == -1 || report.KVUsage >= 0 && report.KVUsage <= 1) {
				t.Errorf("%+v", report)
			}
		}
	})
}
