package app

import (
	"context"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/fx"

	"github.com/routerd/routerd/catalog"
	"github.com/routerd/routerd/catalog/adapters"
	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/internal/config"
)

// newAdapters loads and unloads the adapters that the configuration names.
func newAdapters(lc fx.Lifecycle, cfg config.Config, c *core.SelectionCore, workers *catalog.Reconciler, log *slog.Logger, reg prometheus.Registerer, failed failures) *adapters.Manager {
	m := adapters.New(cfg.LoRA, c, workers, log.With("component", "adapters"))
	reg.MustRegister(adapterMetrics{m, prometheus.NewDesc("routerd_lora_adapters", "Managed adapters by where a worker stands with them.", []string{"state"}, nil)})
	background(lc, failed, "adapters", m.Run)
	return m
}

// followAdapters has the managed adapters follow the configuration.
func followAdapters(r *reloads, m *adapters.Manager) {
	r.follow(settingsLast, part{keys: []string{"lora."}, prepare: func(_ context.Context, now *config.Config) (prepared, error) {
		return settled(func() { m.Configure(now.LoRA) }), now.LoRA.Validate()
	}})
}

// adapterMetrics counts, for each state, on how many workers a managed adapter is
// in it.
type adapterMetrics struct {
	manager *adapters.Manager
	desc    *prometheus.Desc
}

var _ prometheus.Collector = adapterMetrics{}

// Describe implements prometheus.Collector.
func (m adapterMetrics) Describe(out chan<- *prometheus.Desc) { out <- m.desc }

// Collect implements prometheus.Collector.
func (m adapterMetrics) Collect(out chan<- prometheus.Metric) {
	states := map[string]int{adapters.Absent: 0, adapters.Loading: 0, adapters.Loaded: 0, adapters.Unloading: 0, adapters.Failed: 0, adapters.NoSlot: 0}
	for _, v := range m.manager.Adapters() {
		states[v.State]++
	}
	for state, n := range states {
		out <- prometheus.MustNewConstMetric(m.desc, prometheus.GaugeValue, float64(n), state)
	}
}
