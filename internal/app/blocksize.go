package app

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/routerd/routerd/catalog"
	"github.com/routerd/routerd/fleet"
)

const (
	probeTimeout = 2 * time.Second
	probeBytes   = 8 << 20 // of an engine's metrics, at most
	lineBytes    = 1 << 20 // of one line of them, at most
)

// The metrics that tell a block size.
const (
	vllmConfig = "vllm:cache_config_info" // in its label block_size
	sglangPage = "sglang:page_size"
)

// blockSizes finds KV block sizes: in the models of the configuration in force,
// or in an engine's metrics.
type blockSizes struct {
	live   *live
	client *http.Client
}

func newEngines(l *live) *blockSizes {
	return &blockSizes{live: l, client: &http.Client{Timeout: probeTimeout}}
}

// Ask asks the engine.
func (b *blockSizes) Ask(ctx context.Context, rec fleet.Record) (catalog.Facts, error) {
	n, err := b.Probe(ctx, rec.URL)
	return catalog.Facts{BlockSize: n}, err
}

// Configured is the model's block size in the configuration, 0 for none.
func (b *blockSizes) Configured(model string) int { return b.live.Load().Models[model].BlockSize }

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
	return blockSizeIn(resp.Body)
}

// blockSizeIn looks for the block size in an engine's metrics. It keeps one line
// at a time, and reads up to the first that tells it.
func blockSizeIn(metrics io.Reader) (int, error) {
	lines := bufio.NewScanner(io.LimitReader(metrics, probeBytes))
	lines.Buffer(nil, lineBytes)
	lines.Split(wholeLines)
	parser := expfmt.NewTextParser(model.UTF8Validation)
	for lines.Scan() {
		if size, ok := blockSizeOf(&parser, lines.Bytes()); ok {
			return size, nil
		}
	}
	if err := lines.Err(); err != nil {
		return 0, fmt.Errorf("read metrics: %w", err)
	}
	return 0, fmt.Errorf("the metrics tell no block size from 1 to %d (%s, %s) in their first %d MiB", fleet.MaxBlockSize, vllmConfig, sglangPage, probeBytes>>20)
}

// wholeLines splits at line feeds and leaves out a last line without one: it may
// be cut off within its number.
func wholeLines(data []byte, _ bool) (advance int, token []byte, err error) {
	i := bytes.IndexByte(data, '\n')
	if i < 0 {
		return 0, nil, nil
	}
	return i + 1, data[:i], nil
}

// blockSizeOf reads one line of metrics.
func blockSizeOf(parser *expfmt.TextParser, line []byte) (int, bool) {
	if !bytes.HasPrefix(line, []byte(vllmConfig)) && !bytes.HasPrefix(line, []byte(sglangPage)) {
		return 0, false
	}
	families, err := parser.TextToMetricFamilies(io.MultiReader(bytes.NewReader(line), strings.NewReader("\n")))
	if err != nil {
		return 0, false
	}
	if ms := families[vllmConfig].GetMetric(); len(ms) > 0 {
		return configuredSize(ms[0])
	}
	if ms := families[sglangPage].GetMetric(); len(ms) > 0 {
		v := ms[0].GetUntyped().GetValue()
		return int(v), v >= 1 && v <= fleet.MaxBlockSize && v == float64(int(v))
	}
	return 0, false
}

func configuredSize(m *dto.Metric) (int, bool) {
	for _, l := range m.GetLabel() {
		if l.GetName() == "block_size" {
			n, err := strconv.Atoi(l.GetValue())
			return n, err == nil && n >= 1 && n <= fleet.MaxBlockSize
		}
	}
	return 0, false
}
