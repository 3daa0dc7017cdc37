package scrape

import (
	"bytes"
	"strconv"
	"strings"
)

// field is what a sample is.
type field uint8

const (
	unwanted field = iota
	running
	waiting
	usage
	used
	total
	usedTokens
	maxTokens
	page
	configInfo
	serverInfo
	loraInfo
)

// fieldOf knows the names of all engines and versions. The llm-d simulator uses
// those of vLLM.
func fieldOf(name []byte) field {
	switch string(name) {
	case "vllm:num_requests_running", "sglang:num_running_reqs", "trtllm_num_requests_running":
		return running
	case "vllm:num_requests_waiting", "sglang:num_queue_reqs", "trtllm_num_requests_waiting":
		return waiting
	case "vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc", "sglang:token_usage", "trtllm_kv_cache_utilization":
		return usage // the second one up to vLLM 0.11
	case "trtllm_kv_cache_used_blocks":
		return used
	case "trtllm_kv_cache_max_blocks":
		return total
	case "sglang:num_used_tokens":
		return usedTokens
	case "sglang:max_total_num_tokens":
		return maxTokens
	case "sglang:page_size":
		return page
	case "vllm:cache_config_info":
		return serverInfo
	case "sglang:cache_config_info":
		return configInfo
	case "vllm:lora_requests_info":
		return loraInfo
	}
	return unwanted
}

// at is where the field is kept.
func (v *values) at(f field) *float64 {
	switch f {
	case running:
		return &v.running
	case waiting:
		return &v.waiting
	case usage:
		return &v.usage
	case used:
		return &v.used
	case total:
		return &v.total
	case usedTokens:
		return &v.usedTokens
	default:
		return &v.maxTokens
	}
}

// labels are those of a sample that matter, as they are written. They alias the
// line.
type labels struct {
	rank             []byte // of engine (vLLM) or dp_rank (SGLang)
	blocks, pageSize []byte // num_gpu_blocks, page_size
	running, waiting []byte // adapters of vllm:lora_requests_info
}

// rankOf is the rank that the labels name.
func (l labels) rankOf() (rank uint32, ok bool) {
	n, err := strconv.ParseUint(string(l.rank), 10, 32)
	return uint32(n), err == nil
}

// labelsIn reads the labels at the beginning of text, if there are any, and returns
// what comes behind them and the blanks.
func labelsIn(text []byte) (l labels, rest []byte, ok bool) {
	rest = text
	if rest[0] == '{' {
		rest = rest[1:]
		for {
			rest = bytes.TrimLeft(rest, ", \t")
			if len(rest) > 0 && rest[0] == '}' {
				rest = rest[1:]
				break
			}
			eq := bytes.IndexByte(rest, '=')
			if eq < 0 || eq+1 >= len(rest) || rest[eq+1] != '"' {
				return l, nil, false
			}
			name, value := rest[:eq], rest[eq+2:]
			end := quoted(value)
			if end < 0 {
				return l, nil, false
			}
			l.set(name, value[:end])
			rest = value[end+1:]
		}
	}
	return l, bytes.TrimLeft(rest, " \t"), true
}

// quoted finds the quote that ends a value.
func quoted(value []byte) int {
	for i := 0; i < len(value); i++ {
		switch value[i] {
		case '"':
			return i
		case '\\':
			i++
		}
	}
	return -1
}

func (l *labels) set(name, value []byte) {
	switch string(name) {
	case "engine", "dp_rank":
		l.rank = value
	case "num_gpu_blocks":
		l.blocks = value
	case "page_size":
		l.pageSize = value
	case "running_lora_adapters":
		l.running = value
	case "waiting_lora_adapters":
		l.waiting = value
	}
}

// loraSample is the newest sample of the adapters in use. Old ones stay in the
// metrics; the value is the time of the sample.
type loraSample struct {
	at    float64 // below 0 for none
	names []string
}

func (s *loraSample) take(l labels, at float64) {
	if !(at >= 0) || at < s.at {
		return
	}
	if at > s.at {
		s.names = nil
	}
	s.at = at
	for _, list := range [][]byte{l.running, l.waiting} {
		for name := range strings.SplitSeq(unescaped(list), ",") {
			if name = strings.TrimSpace(name); name != "" {
				s.names = append(s.names, name)
			}
		}
	}
}

// unescaped is the text of a label's value.
func unescaped(value []byte) string {
	if bytes.IndexByte(value, '\\') < 0 {
		return string(value)
	}
	return strings.NewReplacer(`\\`, `\`, `\"`, `"`, `\n`, "\n").Replace(string(value))
}
