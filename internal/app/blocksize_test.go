package app_test

import (
	"bufio"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"

	"github.com/routerd/routerd/internal/app"
)

func TestTheBlockSizeIsReadFromTheEnginesMetrics(t *testing.T) {
	for name, c := range map[string]struct {
		metrics string
		want    int // 0: none is told
	}{
		"vLLM":                   {"# HELP vllm:cache_config_info Info.\n# TYPE vllm:cache_config_info gauge\nvllm:cache_config_info{block_size=\"16\",engine=\"0\"} 1\n", 16},
		"vLLM, quoted values":    {"vllm:cache_config_info{a=\"}\\\" block_size=\\\"8\\\"\",block_size=\"32\"} 1.0\n", 32},
		"SGLang":                 {"# TYPE sglang:page_size gauge\nsglang:page_size{model_name=\"m\"} 64.0\n", 64},
		"after others":           {"up 1\n\nnonsense{\nsglang:page_size 1\n", 1},
		"a second rank tells":    {"vllm:cache_config_info{engine=\"0\"} 1\nvllm:cache_config_info{block_size=\"16\",engine=\"1\"} 1\n", 16},
		"None":                   {"vllm:cache_config_info{block_size=\"None\"} 1\n", 0},
		"too large":              {"sglang:page_size 1e9\n", 0},
		"a fraction":             {"sglang:page_size 1.5\n", 0},
		"no number":              {"sglang:page_size NaN\n", 0},
		"a longer name":          {"sglang:page_size_total 16\n", 0},
		"cut off in its number":  {"up 1\nsglang:page_size 1", 0},
		"a comment, no metric":   {"# sglang:page_size 16\n", 0},
		"two values on one line": {"sglang:page_size 16 1 2\n", 0},
		"nothing":                {"", 0},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := app.BlockSizeIn(strings.NewReader(c.metrics))
			if got != c.want || (err == nil) != (c.want > 0) {
				t.Errorf("got %d, %v, want %d", got, err, c.want)
			}
		})
	}
}

// endless repeats a line and counts what was read of it.
type endless struct {
	line string
	read int
}

func (e *endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = e.line[e.read%len(e.line)]
		e.read++
	}
	return len(p), nil
}

func TestEndlessMetricsCostLittleMemoryAndEndAtABound(t *testing.T) {
	for _, line := range []string{
		"vllm:something{engine=\"0\"} 1\n",
		"vllm:cache_config_info{engine=\"" + strings.Repeat("x", 10_000) + "\"} 1\n",
		strings.Repeat("up 1\n", 10) + "sglang:page_size 0\n",
	} {
		engine := &endless{line: line}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if got, err := app.BlockSizeIn(engine); err == nil {
			t.Errorf("found %d", got)
		}
		runtime.ReadMemStats(&after)
		if engine.read > 8<<20 {
			t.Errorf("%d bytes were read", engine.read)
		}
		if total := (after.TotalAlloc - before.TotalAlloc) >> 20; total > 128 {
			t.Errorf("%d MiB were allocated for %.30q", total, line)
		}
	}
}

func TestALineWithoutEndIsAnError(t *testing.T) {
	engine := &endless{line: "x"}
	if _, err := app.BlockSizeIn(io.MultiReader(strings.NewReader("up 1\n"), engine)); !errors.Is(err, bufio.ErrTooLong) {
		t.Errorf("got %v", err)
	}
	if engine.read > 2<<20 {
		t.Errorf("%d bytes were read", engine.read)
	}
}
