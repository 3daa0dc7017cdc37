package sim

import (
	"net"
	"strconv"
	"strings"

	"github.com/valyala/fasthttp"
)

// serverInfo serves SGLang's GET /server_info and /get_server_info: of its
// arguments those that a router asks for, in the form of the face's release.
func (e *Engine) serverInfo(x *exchange) {
	type arguments struct {
		ModelPath   string  `json:"model_path"`
		Served      string  `json:"served_model_name"`
		PageSize    int     `json:"page_size"`
		DPSize      int     `json:"dp_size"`
		Prefill     int     `json:"max_prefill_tokens"`
		EnableLora  bool    `json:"enable_lora"`
		KVConfig    *string `json:"kv_events_config"`
		Status      string  `json:"status"`
		Tokens      int     `json:"max_total_num_tokens"`
		MaxInput    int     `json:"max_req_input_len"`
		States      []any   `json:"internal_states"`
		Version     string  `json:"version"`
		KVEvents    any     `json:"kv_events,omitempty"`
		LoadPublish *string `json:"load_publish_endpoint,omitempty"`
	}
	c := e.cfg
	body := arguments{
		ModelPath: c.Model, Served: c.Model, PageSize: c.BlockSize, DPSize: c.Ranks, Prefill: c.MaxBatchedTokens,
		EnableLora: len(c.Adapters) > 0 || c.AdapterUpdates, Status: "ready", Tokens: c.Blocks * c.BlockSize,
		MaxInput: c.MaxModelLen - 6, States: []any{}, Version: c.Face.version(),
	}
	if c.Events {
		config := e.publisherConfig()
		body.KVConfig = &config
		if c.Face == FaceSGLang0523 {
			body.KVEvents = e.describePublisher()
		}
	}
	if c.LoadListen != "" {
		body.LoadPublish = &c.LoadListen
	}
	x.reply(fasthttp.StatusOK, body)
}

// publisherConfig is --kv-events-config as it was given, with the ports of rank 0.
func (e *Engine) publisherConfig() string {
	type config struct {
		Publisher string  `json:"publisher"`
		Endpoint  string  `json:"endpoint"`
		Replay    *string `json:"replay_endpoint,omitempty"`
		Topic     string  `json:"topic"`
	}
	c := config{Publisher: "zmq", Endpoint: e.EventEndpoints()[0], Topic: e.cfg.Topic}
	if replay, ok := e.ReplayEndpoints()[0]; ok {
		c.Replay = &replay
	}
	return string(encodeJSON(c))
}

// describePublisher is SGLang's description of its sockets; rank r is at each port
// base + r.
func (e *Engine) describePublisher() any {
	type description struct {
		Publisher  string `json:"publisher"`
		Host       string `json:"endpoint_host"`
		Port       int    `json:"endpoint_port_base"`
		Topic      string `json:"topic"`
		BlockSize  int    `json:"block_size"`
		DPSize     int    `json:"dp_size"`
		LoadPort   int    `json:"load_endpoint_port_base,omitempty"`
		LoadTopic  string `json:"load_topic,omitempty"`
		ReplayPort int    `json:"replay_endpoint_port_base,omitempty"`
	}
	d := description{Publisher: "zmq", Topic: e.cfg.Topic, BlockSize: e.cfg.BlockSize, DPSize: e.cfg.Ranks}
	d.Host, d.Port = hostPort(e.EventEndpoints()[0])
	_, d.ReplayPort = hostPort(e.ReplayEndpoints()[0])
	if _, d.LoadPort = hostPort(e.LoadEndpoints()[0]); d.LoadPort > 0 {
		d.LoadTopic = loadTopic
	}
	return d
}

// hostPort splits an address that a socket was bound to; an empty one has no port.
func hostPort(endpoint string) (host string, port int) {
	host, text, err := net.SplitHostPort(strings.TrimPrefix(endpoint, "tcp://"))
	if err != nil {
		return "", 0
	}
	port, err = strconv.Atoi(text)
	if err != nil {
		return "", 0
	}
	return host, port
}

// iterations serves TensorRT-LLM's GET /metrics: JSON with the last iteration, that of
// the first rank.
func (e *Engine) iterations(x *exchange) {
	type cacheStats struct {
		Blocks    int `json:"maxNumBlocks"`
		Free      int `json:"freeNumBlocks"`
		Used      int `json:"usedNumBlocks"`
		BlockSize int `json:"tokensPerBlock"`
	}
	type iteration struct {
		Iter   int        `json:"iter"`
		Active int        `json:"numActiveRequests"`
		Queued int        `json:"numQueuedRequests"`
		KV     cacheStats `json:"kvCacheStats"`
	}
	s := e.ranks[0].state()
	used := int(s.usage * float64(e.cfg.Blocks))
	x.reply(fasthttp.StatusOK, []iteration{{
		Iter: 1, Active: len(s.running), Queued: len(s.waiting),
		KV: cacheStats{Blocks: e.cfg.Blocks, Free: e.cfg.Blocks - used, Used: used, BlockSize: e.cfg.BlockSize},
	}})
}
