package scrape_test

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/routerd/routerd/catalog/scrape"
	"github.com/routerd/routerd/fleet"
)

// histograms is what most of an engine's metrics are.
func histograms(bytes int) string {
	var b strings.Builder
	for i := 0; b.Len() < bytes; i++ {
		if i%20 == 0 {
			fmt.Fprintf(&b, "# HELP vllm:time_%d_seconds Histogram of something in seconds.\n# TYPE vllm:time_%d_seconds histogram\n", i, i)
		}
		fmt.Fprintf(&b, "vllm:time_to_first_token_seconds_bucket{engine=\"0\",le=\"%d\",model_name=\"base-model\"} %d.0\n", i, i)
	}
	return b.String()
}

// BenchmarkReadMetrics reads the metrics of one engine: those that matter alone, and
// among others.
func BenchmarkReadMetrics(b *testing.B) {
	small := fixture(b, "openai/metrics_vllm_0_33.txt")
	for _, c := range []struct{ name, body string }{
		{"vllm_0.33", small},
		{"vllm_0.30_whole", fixture(b, "answers/vllm-0.30.0/metrics.txt")},
		{"vllm_0.9", fixture(b, "openai/metrics_vllm_0_9.txt")},
		{"sglang", fixture(b, "openai/metrics_sglang.txt")},
		{"among_64KiB", histograms(64<<10) + small},
		{"among_1MiB", histograms(1<<20) + small},
	} {
		b.Run(c.name, func(b *testing.B) {
			r := record(1, "http://127.0.0.1:1")
			b.SetBytes(int64(len(c.body)))
			b.ReportAllocs()
			for b.Loop() {
				if got, err := scrape.ReadMetrics(strings.NewReader(c.body), r, noon); err != nil || len(got.Reports) != 1 {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkReport looks up the report of one rank among 5,000 workers.
func BenchmarkReport(b *testing.B) {
	s := scrape.New(scrape.DefaultConfig(), listOf(), discard())
	var records []fleet.Record
	for i := range 5000 {
		records = append(records, record(fleet.WorkerID(1+i), fmt.Sprintf("http://127.0.0.1:%d", 1+i)))
	}
	s.Known(records...)
	for _, r := range records {
		s.Pushed(fleet.Worker{ID: r.ID}, scrape.Push{At: time.Now().Add(time.Hour), Running: 1})
	}
	i := 0
	b.ReportAllocs()
	for b.Loop() {
		i = (i + 1) % len(records)
		if _, ok := s.Report(fleet.Worker{ID: records[i].ID}); !ok {
			b.Fatal("no report")
		}
	}
}

// BenchmarkScrape asks 100 engines over HTTP ten times a second and tells the
// processor's time for each answer, that of the server, which is in the same process,
// included.
func BenchmarkScrape(b *testing.B) {
	for _, c := range []struct{ name, body string }{
		{"vllm_0.30_whole", fixture(b, "answers/vllm-0.30.0/metrics.txt")},
		{"among_1MiB", histograms(1<<20) + fixture(b, "openai/metrics_vllm_0_33.txt")},
	} {
		b.Run(c.name, func(b *testing.B) { benchmarkScrape(b, c.body) })
	}
}

func benchmarkScrape(b *testing.B, body string) {
	e := newEngine(b, body, fixture(b, "openai/models_vllm.json"))
	var records []fleet.Record
	for i := range 100 {
		records = append(records, record(fleet.WorkerID(1+i), e.URL))
	}
	s := scrape.New(quick(), listOf(records...), discard())
	before := cpu(b)
	stop := start(b, s)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	b.ResetTimer()
	for e.asked.Load() < int64(b.N) {
		<-tick.C
	}
	stop()
	b.ReportMetric(float64((cpu(b)-before).Microseconds())/float64(e.asked.Load()), "cpu-µs/answer")
}

func cpu(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
