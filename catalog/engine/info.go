package engine

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
)

// serverInfo is the answer of /server_info: SGLang's arguments and state, or, below
// vllm_config, the configuration that vLLM shows in its developer mode, which older
// releases write as text that is not read.
type serverInfo struct {
	Version  string   `json:"version"`
	PageSize whole64  `json:"page_size"`
	DPSize   whole64  `json:"dp_size"`
	Tokens   whole64  `json:"max_total_num_tokens"` // KV capacity of a rank
	Prefill  whole64  `json:"max_prefill_tokens"`
	KVEvents *sgEvent `json:"kv_events"`        // from 0.5.15
	KVConfig string   `json:"kv_events_config"` // JSON in a text
	Served   string   `json:"served_model_name"`

	VLLM json.RawMessage `json:"vllm_config"`
	vllm vllmConfig
}

// sgEvent is where SGLang publishes: rank r is at each port base + r.
type sgEvent struct {
	Publisher  string  `json:"publisher"`
	Host       string  `json:"endpoint_host"`
	Port       whole64 `json:"endpoint_port_base"`
	BlockSize  whole64 `json:"block_size"`
	DPSize     whole64 `json:"dp_size"`
	ReplayPort whole64 `json:"replay_endpoint_port_base"`
	LoadPort   whole64 `json:"load_endpoint_port_base"`
}

type vllmConfig struct {
	Scheduler struct {
		MaxBatchedTokens whole64 `json:"max_num_batched_tokens"`
	} `json:"scheduler_config"`
	KVEvents *publisher `json:"kv_events_config"`
}

// whole64 is a number of an answer; what is no whole number reads as 0, so that one
// odd field does not hide the others.
type whole64 int

// UnmarshalJSON takes any JSON value.
func (n *whole64) UnmarshalJSON(text []byte) error {
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		return err
	}
	if f, ok := v.(float64); ok && f == math.Trunc(f) && math.Abs(f) < 1<<53 {
		*n = whole64(f)
	}
	return nil
}

// readInfo reads /server_info or, by its older name, /get_server_info.
func (s *answers) readInfo(body io.Reader) error {
	var info serverInfo
	if err := decode(body, &info); err != nil {
		return err
	}
	if len(info.VLLM) > 0 {
		_ = json.Unmarshal(info.VLLM, &info.vllm) // text in older releases: nothing is read of it
	}
	if info.empty() {
		return fmt.Errorf("neither SGLang's arguments nor vLLM's configuration")
	}
	s.info = info
	return nil
}

func (i *serverInfo) empty() bool { return !i.sglang() && len(i.VLLM) == 0 }

// sglang tells whether the answer is SGLang's.
func (i *serverInfo) sglang() bool {
	return i.KVEvents != nil || i.PageSize > 0 || i.Version != "" && i.Tokens > 0
}

// told is the SGLang configuration of the publisher in the form of releases before
// 0.5.15.
func (i *serverInfo) told() (publisher, bool) {
	var p publisher
	if i.KVConfig == "" || json.Unmarshal([]byte(i.KVConfig), &p) != nil {
		return publisher{}, false
	}
	if p.Endpoint == "" {
		p.Endpoint = "tcp://*:5557" // SGLang's default
	}
	if p.Publisher == "" {
		p.Publisher = "null"
	}
	return p, true
}

// sockets are SGLang's by what the release tells.
func (i *serverInfo) sockets(host, place string, start, ranks int) (events, replay, load sockets) {
	load.why = place + " names no load socket; SGLang opens one with --load-publish-endpoint"
	e := i.KVEvents
	if e == nil {
		if p, ok := i.told(); ok {
			events, replay = configured(p, host, start, ranks, place)
			return events, replay, load
		}
		why := "KV events are off (" + place + "); SGLang publishes with --kv-events-config"
		return sockets{why: why}, sockets{why: why}, load
	}
	replay.why = place + " names no replay socket"
	for shift := range ranks {
		at := func(k *sockets, bind string, port whole64) {
			if port > 0 {
				endpoint, err := tcp(bind, host, int(port)+shift)
				k.put(start+shift, endpoint, err)
			}
		}
		at(&events, e.Host, e.Port)
		at(&replay, e.Host, e.ReplayPort)
		at(&load, "*", e.LoadPort) // the address of the events is not that of the load
	}
	if events.byRank == nil && events.why == "" {
		events.why = place + " names no port"
	}
	return events, replay, load
}
