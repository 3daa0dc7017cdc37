package app

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/internal/config"
)

const (
	probeTimeout = 2 * time.Second
	probeBytes   = 8 << 20
)

// blockSizes finds KV block sizes: in the models of the configuration, or in
// an engine's metrics.
type blockSizes struct {
	models map[string]config.Model
	client *http.Client
}

func newBlockSizes(models map[string]config.Model) *blockSizes {
	return &blockSizes{models: models, client: &http.Client{Timeout: probeTimeout}}
}

// Configured is the model's block size in the configuration, 0 for none.
func (b *blockSizes) Configured(model string) int { return b.models[model].BlockSize }

// Probe reads the block size from the engine's /metrics.
func (b *blockSizes) Probe(ctx context.Context, url string) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/metrics", http.NoBody)
	if err != nil {
		return 0, fmt.Errorf("ask for metrics: %w", err)
	}
	resp, err := b.client.Do(req)
	if err != nil {
		return 0, fmt.Errorf("ask for metrics: %w", err)
	}
	defer func() { _ = resp.Body.Close() }() // nothing is lost when closing a read body fails
	if resp.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("ask for metrics: status %d", resp.StatusCode)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(io.LimitReader(resp.Body, probeBytes))
	if err != nil {
		return 0, fmt.Errorf("read metrics: %w", err)
	}
	size, ok := blockSizeOf(families)
	if !ok {
		return 0, fmt.Errorf("the metrics tell no block size from 1 to %d (vllm:cache_config_info, sglang:page_size)", fleet.MaxBlockSize)
	}
	return size, nil
}

func blockSizeOf(families map[string]*dto.MetricFamily) (int, bool) {
	for _, m := range families["vllm:cache_config_info"].GetMetric() {
		for _, l := range m.GetLabel() {
			if l.GetName() != "block_size" {
				continue
			}
			if n, err := strconv.Atoi(l.GetValue()); err == nil && n >= 1 && n <= fleet.MaxBlockSize {
				return n, true
			}
		}
	}
	for _, m := range families["sglang:page_size"].GetMetric() {
		if v := m.GetGauge().GetValue(); v >= 1 && v <= fleet.MaxBlockSize && v == float64(int(v)) {
			return int(v), true
		}
	}
	return 0, false
}
