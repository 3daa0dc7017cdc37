package engine

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/routerd/routerd/fleet"
)

// The metrics that tell something.
const (
	vllmConfigInfo = "vllm:cache_config_info"   // labels block_size, num_gpu_blocks, engine
	sglangConfig   = "sglang:cache_config_info" // labels page_size, num_pages; before 0.5.15
	sglangPage     = "sglang:page_size"
	sglangTokens   = "sglang:max_total_num_tokens"
	sglangRunning  = "sglang:num_running_reqs" // its label dp_rank
)

// maxSamples bounds how many lines are read closely; an engine with all ranks that
// a worker may have has fewer.
const maxSamples = 4 * fleet.MaxRanks

// metrics are what /metrics tells: an exposition of Prometheus (vLLM, SGLang), or
// TensorRT-LLM's iteration statistics, which are taken by whoever reads them first.
type metrics struct {
	kind      string       // whose names they are
	blockSize int          // 0: not told
	blocks    int          // vLLM: of all ranks of this server together
	tokens    int          // SGLang: KV capacity of a rank
	ranks     map[int]bool // labels engine or dp_rank
	trt       []iteration
	samples   int
}

// iteration is one of TensorRT-LLM's.
type iteration struct {
	KV *struct {
		Blocks    whole64 `json:"maxNumBlocks"`
		BlockSize whole64 `json:"tokensPerBlock"`
	} `json:"kvCacheStats"`
}

// read keeps one line at a time.
func (m *metrics) read(body io.Reader) error {
	r := bufio.NewReader(body)
	if first, err := r.Peek(1); err == nil && first[0] == '[' {
		return m.readIterations(r)
	}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLine)
	lines.Split(wholeLines)
	parser := expfmt.NewTextParser(model.UTF8Validation)
	m.ranks = map[int]bool{}
	read := 0
	for lines.Scan() && m.samples < maxSamples {
		read += len(lines.Bytes()) + 1
		m.line(&parser, lines.Bytes())
	}
	switch err := lines.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return fmt.Errorf("a line of more than %d MiB", maxLine>>20)
	case err != nil:
		return err
	case m.kind == "":
		return fmt.Errorf("no metrics of vLLM, SGLang or TensorRT-LLM in %d bytes", read)
	}
	return nil
}

func (m *metrics) readIterations(body io.Reader) error {
	if err := decode(body, &m.trt); err != nil {
		return err
	}
	m.kind = trtllm
	for _, i := range m.trt {
		if i.KV != nil {
			m.blockSize, m.blocks = int(i.KV.BlockSize), int(i.KV.Blocks)
		}
	}
	return nil
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

// line reads one line of an exposition.
func (m *metrics) line(parser *expfmt.TextParser, line []byte) {
	switch {
	case bytes.HasPrefix(line, []byte("vllm:")):
		m.kind = vllm
	case bytes.HasPrefix(line, []byte("sglang:")):
		m.kind = sglang
	default:
		return
	}
	name := line
	if i := bytes.IndexAny(line, "{ "); i >= 0 {
		name = line[:i]
	}
	switch string(name) {
	case vllmConfigInfo, sglangConfig, sglangPage, sglangTokens, sglangRunning:
	default:
		return
	}
	m.samples++
	families, err := parser.TextToMetricFamilies(io.MultiReader(bytes.NewReader(line), strings.NewReader("\n")))
	if err != nil {
		return
	}
	for _, sample := range families[string(name)].GetMetric() {
		m.sample(string(name), labels(sample), sample.GetUntyped().GetValue())
	}
}

func labels(m *dto.Metric) map[string]string {
	all := map[string]string{}
	for _, l := range m.GetLabel() {
		all[l.GetName()] = l.GetValue()
	}
	return all
}

// sample takes the first value of each kind that is in range.
func (m *metrics) sample(name string, labels map[string]string, value float64) {
	take := func(to *int, v, most int) {
		if *to == 0 && v >= 1 && v <= most {
			*to = v
		}
	}
	text := func(label string) int {
		n, err := strconv.Atoi(labels[label])
		if err != nil {
			return 0
		}
		return n
	}
	number := 0
	if value >= 1 && value <= 1<<40 && value == float64(int(value)) {
		number = int(value)
	}
	switch name {
	case vllmConfigInfo:
		take(&m.blockSize, text("block_size"), fleet.MaxBlockSize)
		take(&m.blocks, text("num_gpu_blocks"), 1<<40)
		m.rank(labels["engine"])
	case sglangConfig:
		take(&m.blockSize, text("page_size"), fleet.MaxBlockSize)
		take(&m.tokens, text("page_size")*min(text("num_pages"), 1<<30), 1<<50)
	case sglangPage:
		take(&m.blockSize, number, fleet.MaxBlockSize)
	case sglangTokens:
		take(&m.tokens, number, 1<<40)
	}
	if name == sglangRunning || name == sglangTokens {
		m.rank(labels["dp_rank"])
	}
}

func (m *metrics) rank(label string) {
	if rank, err := strconv.Atoi(label); err == nil && rank >= 0 && rank < fleet.MaxRanks {
		m.ranks[rank] = true
	}
}
