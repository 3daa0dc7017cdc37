package sim

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

// sglangMetrics tells the engine's state under SGLang's names.
type sglangMetrics struct {
	engine *Engine

	running, queued, usage, used, tokens, hitRate *prometheus.Desc
	page, pages, config                           *prometheus.Desc // nil where the release has none
}

var _ prometheus.Collector = (*sglangMetrics)(nil)

func newSGLangMetrics(e *Engine) *sglangMetrics {
	perRank := []string{"dp_rank", "engine_type", "model_name", "pp_rank", "tp_rank"}
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("sglang:"+name, help, perRank, nil)
	}
	m := &sglangMetrics{
		engine:  e,
		running: desc("num_running_reqs", "The number of running requests."),
		queued:  desc("num_queue_reqs", "The number of requests in the waiting queue."),
		usage:   desc("token_usage", "The token usage."),
		used:    desc("num_used_tokens", "The number of used tokens."),
		tokens:  desc("max_total_num_tokens", "Maximum total number of tokens in the KV cache pool."),
		hitRate: desc("cache_hit_rate", "The prefix cache hit rate."),
	}
	if e.cfg.Face == FaceSGLang0510 {
		m.config = prometheus.NewDesc("sglang:cache_config_info", "Cache configuration information.", []string{"page_size", "num_pages"}, nil)
		return m
	}
	m.page = desc("page_size", "KV cache page size in tokens.")
	m.pages = desc("num_pages", "Number of KV cache pages.")
	return m
}

// Describe implements prometheus.Collector.
func (m *sglangMetrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.running, m.queued, m.usage, m.used, m.tokens, m.hitRate, m.page, m.pages, m.config} {
		if d != nil {
			ch <- d
		}
	}
}

// Collect implements prometheus.Collector.
func (m *sglangMetrics) Collect(ch chan<- prometheus.Metric) {
	cfg := m.engine.cfg
	capacity := float64(cfg.Blocks * cfg.BlockSize)
	for _, r := range m.engine.ranks {
		s := r.state()
		id := strconv.Itoa(r.id)
		put := func(d *prometheus.Desc, v float64) {
			if d != nil {
				ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, id, "unified", cfg.Model, "0", id)
			}
		}
		put(m.running, float64(len(s.running)))
		put(m.queued, float64(len(s.waiting)))
		put(m.usage, s.usage)
		put(m.used, s.usage*capacity)
		put(m.tokens, capacity)
		put(m.hitRate, float64(s.hits)/float64(max(s.queries, 1)))
		put(m.page, float64(cfg.BlockSize))
		put(m.pages, float64(cfg.Blocks))
	}
	if m.config != nil {
		ch <- prometheus.MustNewConstMetric(m.config, prometheus.GaugeValue, 1, strconv.Itoa(cfg.BlockSize), strconv.Itoa(cfg.Blocks))
	}
}
