package engine

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"

	"github.com/routerd/routerd/fleet"
)

// publisher is how an engine publishes KV events: vLLM's and SGLang's
// configuration, and what vLLM tells of one rank.
type publisher struct {
	Enabled   *bool   `json:"enable_kv_cache_events"`
	Publisher string  `json:"publisher"`
	Endpoint  string  `json:"endpoint"`
	Replay    *string `json:"replay_endpoint"`
}

// on tells whether there are events at all; Enabled is vLLM's, absent in SGLang.
func (p publisher) on() bool {
	return p.Publisher != "null" && p.Endpoint != "" && (p.Enabled == nil || *p.Enabled)
}

func (p publisher) replay() string {
	if p.Replay == nil {
		return ""
	}
	return *p.Replay
}

// readSources reads vLLM's /kv_event_sources: per rank the configuration with the
// ports that were bound.
func (s *answers) readSources(body io.Reader) error {
	var byRank map[string]publisher
	if err := decode(body, &byRank); err != nil {
		return err
	}
	s.sources = map[int]publisher{}
	for _, key := range slices.Sorted(maps.Keys(byRank)) { // a rank may be written in several ways
		if rank, err := strconv.Atoi(key); err == nil && rank >= 0 && rank < fleet.MaxRanks {
			s.sources[rank] = byRank[key]
		}
	}
	return nil
}

// sockets are the endpoints of one kind by rank, or why there are none.
type sockets struct {
	byRank map[int]string
	why    string
}

func (k *sockets) put(rank int, endpoint string, err error) {
	if err != nil {
		k.why = fmt.Sprintf("rank %d: %s", rank, err)
		return
	}
	if k.byRank == nil {
		k.byRank = map[int]string{}
	}
	k.byRank[rank] = endpoint
}

// resolved are the sockets of ranks that the engine lists one by one.
func resolved(sources map[int]publisher, host string) (events, replay sockets) {
	events.why, replay.why = sourcesPath+" names no publisher", sourcesPath+" names no replay socket"
	for _, rank := range slices.Sorted(maps.Keys(sources)) {
		p := sources[rank]
		if !p.on() {
			continue
		}
		endpoint, err := reach(p.Endpoint, host, 0)
		events.put(rank, endpoint, err)
		if r := p.replay(); r != "" {
			endpoint, err := reach(r, host, 0)
			replay.put(rank, endpoint, err)
		}
	}
	return events, replay
}

// configured are the sockets of an engine that tells one configuration for all
// ranks: rank r takes the port + r.
func configured(p publisher, host string, start, ranks int, place string) (events, replay sockets) {
	if !p.on() {
		why := "KV events are off (" + place + ")"
		return sockets{why: why}, sockets{why: why}
	}
	replay.why = place + " names no replay socket"
	for shift := range ranks {
		endpoint, err := reach(p.Endpoint, host, shift)
		events.put(start+shift, endpoint, err)
		if r := p.replay(); r != "" {
			endpoint, err := reach(r, host, shift)
			replay.put(start+shift, endpoint, err)
		}
	}
	return events, replay
}
