package sim

import (
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
)

// metrics tells the engine's state under vLLM's names, read when it is scraped.
type metrics struct {
	engine   *Engine
	registry *prometheus.Registry

	running, waiting, usage, queries, hits, adapters, config *prometheus.Desc
}

var _ prometheus.Collector = (*metrics)(nil)

func newMetrics(e *Engine) *metrics {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("vllm:"+name, help, labels, nil)
	}
	perRank, cacheConfig, usage := []string{"engine", "model_name"}, []string{"block_size", "enable_prefix_caching", "engine", "num_gpu_blocks"}, "kv_cache_usage_perc"
	switch e.cfg.Face {
	case FaceLLMD:
		perRank, cacheConfig = perRank[1:], []string{"block_size", "num_gpu_blocks"}
	case FaceVLLM09:
		usage = "gpu_cache_usage_perc"
	}
	m := &metrics{
		engine:   e,
		registry: prometheus.NewRegistry(),
		running:  desc("num_requests_running", "Number of requests in model execution batches.", perRank...),
		waiting:  desc("num_requests_waiting", "Number of requests waiting to be processed.", perRank...),
		usage:    desc(usage, "KV-cache usage. 1 means 100 percent usage.", perRank...),
		queries:  desc("prefix_cache_queries_total", "Prefix cache queries, in terms of number of queried tokens.", perRank...),
		hits:     desc("prefix_cache_hits_total", "Prefix cache hits, in terms of number of cached tokens.", perRank...),
		adapters: desc("lora_requests_info", "Running stats on lora requests.", "max_lora", "running_lora_adapters", "waiting_lora_adapters"),
		config:   desc("cache_config_info", "Information of the LLMEngine CacheConfig.", cacheConfig...),
	}
	if e.cfg.Face.sglang() {
		m.registry.MustRegister(newSGLangMetrics(e))
		return m
	}
	m.registry.MustRegister(m)
	return m
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.running, m.waiting, m.usage, m.queries, m.hits, m.adapters, m.config} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	cfg := m.engine.cfg
	blocks := strconv.Itoa(cfg.Blocks)
	if cfg.Face == FaceDefault || cfg.Face == FaceVLLM09 || cfg.Face == FaceVLLM033 {
		blocks = strconv.Itoa(cfg.Blocks * cfg.Ranks) // vLLM tells the sum of all ranks
	}
	ranks := m.engine.ranks
	if cfg.Face == FaceVLLM09 {
		ranks = ranks[len(ranks)-1:] // each rank forgets the metrics of the one before
	}
	var running, waiting adapterNames
	for _, r := range ranks {
		s := r.state()
		id := strconv.Itoa(r.id)
		put := func(d *prometheus.Desc, t prometheus.ValueType, v float64) {
			labels := []string{id, cfg.Model}
			if cfg.Face == FaceLLMD {
				labels = labels[1:]
			}
			ch <- prometheus.MustNewConstMetric(d, t, v, labels...)
		}
		put(m.running, prometheus.GaugeValue, float64(len(s.running)))
		put(m.waiting, prometheus.GaugeValue, float64(len(s.waiting)))
		put(m.usage, prometheus.GaugeValue, s.usage)
		put(m.queries, prometheus.CounterValue, float64(s.queries))
		put(m.hits, prometheus.CounterValue, float64(s.hits))
		config := []string{strconv.Itoa(cfg.BlockSize), "True", id, blocks}
		if cfg.Face == FaceLLMD {
			config = []string{config[0], blocks}
		}
		ch <- prometheus.MustNewConstMetric(m.config, prometheus.GaugeValue, 1, config...)
		running.add(s.running)
		waiting.add(s.waiting)
	}
	if len(cfg.Adapters) > 0 || cfg.AdapterUpdates {
		now := float64(time.Now().UnixNano()) / 1e9
		most := max(1, len(cfg.Adapters), cfg.MaxAdapters)
		ch <- prometheus.MustNewConstMetric(m.adapters, prometheus.GaugeValue, now, strconv.Itoa(most), running.list(), waiting.list())
	}
}

// adapterNames collects names without repeating one, in order of appearance.
type adapterNames struct{ names []string }

func (a *adapterNames) add(names []string) {
next:
	for _, n := range names {
		if n == "" {
			continue
		}
		for _, have := range a.names {
			if have == n {
				continue next
			}
		}
		a.names = append(a.names, n)
	}
}

func (a *adapterNames) list() string { return strings.Join(a.names, ",") }

// scrape serves GET /metrics in the text format.
func (e *Engine) scrape(x *exchange) {
	families, err := e.metrics.registry.Gather()
	if err != nil {
		x.fail(err)
		return
	}
	text := expfmt.NewFormat(expfmt.TypeTextPlain)
	x.Response.Header.SetContentType(string(text))
	enc := expfmt.NewEncoder(x.Response.BodyWriter(), text)
	for _, f := range families {
		if err := enc.Encode(f); err != nil {
			x.fail(err)
			return
		}
	}
}
