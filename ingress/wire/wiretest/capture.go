// Package wiretest reads the recorded KV-event captures for the tests of several packages.
package wiretest

import (
	"encoding/binary"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/routerd/routerd/kvcache"
)

// Dir returns the folder of the captures.
func Dir() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "..", "testdata", "kv_events")
}

// Names returns the names, without ending, of the captures that match a pattern of filepath.Match. None is a failure.
func Names(t testing.TB, pattern string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(Dir(), pattern+".bin"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("captures %q: %d found, error %v", pattern, len(paths), err)
	}
	for i, p := range paths {
		paths[i] = strings.TrimSuffix(filepath.Base(p), ".bin")
	}
	return paths
}

// Messages returns the frames of every message of a capture.
func Messages(t testing.TB, name string) [][][]byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(Dir(), name+".bin"))
	if err != nil {
		t.Fatal(err)
	}
	word := func() int {
		n := binary.LittleEndian.Uint32(data)
		data = data[4:]
		return int(n)
	}
	var messages [][][]byte
	for len(data) > 0 {
		frames := make([][]byte, word())
		for i := range frames {
			n := word()
			frames[i], data = data[:n], data[n:]
		}
		messages = append(messages, frames)
	}
	return messages
}

// State is what ranks hold, by rank and medium.
type State map[string]map[string][]string

// Want is what a capture's description expects of its decoding.
type Want struct {
	Engine   string
	Messages []struct {
		Topic  string
		Seq    string
		TS     float64
		DPRank *uint64 `json:"dp_rank"`
		Events []Event
	}
	FinalState      State    `json:"final_state"`
	AfterRestart    State    `json:"final_state_after_restart"`
	IfRepaired      State    `json:"final_state_if_repaired"`
	MissingSeqs     []string `json:"missing_seqs"`
	RestartAt       int      `json:"restart_at_message"`
	BlockSize       int      `json:"block_size"`
	Queries         []Query
	RequestStartSeq string `json:"request_start_seq"`
	Replies         []struct {
		Frames       int
		Seq          string
		EndMarker    bool `json:"end_marker"`
		PayloadBytes int  `json:"payload_bytes"`
	}
	Cases []struct {
		Index  int
		Name   string
		Expect string
	}
}

// Event is one expected event.
type Event struct {
	Type      string
	Hashes    []string `json:"block_hashes"`
	Parent    *string
	Tokens    []json.RawMessage `json:"token_ids"`
	BlockSize int               `json:"block_size"`
	LoraID    int64             `json:"lora_id"`
	LoraName  string            `json:"lora_name"`
	Medium    string
	Group     int32             `json:"group_idx"`
	Kind      string            `json:"kv_cache_spec_kind"`
	Locality  string            `json:"locality"`
	Salt      string            `json:"cache_salt"`
	ExtraKeys json.RawMessage   `json:"extra_keys"`
	Media     []json.RawMessage `json:"block_mm_infos"`
}

// Query is one look-up with the number of leading blocks that the worker still holds.
type Query struct {
	LoraName *string `json:"lora_name"`
	Tokens   []uint32
	Want     uint32 `json:"expected_matched_blocks"`
}

// Description reads what a capture's description expects.
func Description(t testing.TB, name string) Want {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(Dir(), name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	var w Want
	if err := json.Unmarshal(data, &w); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return w
}

// Hash turns a hash of a description, which may be signed, into the form that decoding gives.
func Hash(t testing.TB, text string) string {
	t.Helper()
	if strings.HasPrefix(text, "x:") {
		return text
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return kvcache.NumberHash(uint64(n)).String()
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("hash %q: %v", text, err)
	}
	return kvcache.NumberHash(n).String()
}
