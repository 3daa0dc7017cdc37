package host_test

import (
	"encoding/json"
	"testing"

	. "github.com/routerd/routerd/host/wasmtest"
	"github.com/routerd/routerd/kvcache"
)

// TestPrefixHashIsAsDeepAsItsSettingSays: a module sees the prompt's beginning at
// the depth that its configuration and the request's overrides ask for.
func TestPrefixHashIsAsDeepAsItsSettingSays(t *testing.T) {
	const setting = `,"request_fields":["prefix_hash","config.prefix_tokens"],"config_schema":{
		"type":"object","properties":{"prefix_tokens":{"type":"integer","minimum":1,"maximum":4096}},"additionalProperties":false}`
	g := Guest{Extra: setting, ScoreTypes: ColumnTypes, Score: Constant(Field(0))}
	r := newRuntime(t)
	hashes := make([]kvcache.SequenceHash, 40)
	for i := range hashes {
		hashes[i] = kvcache.SequenceHash(uint64(i+1) << 32)
	}
	for name, c := range map[string]struct {
		config, override string
		depth            int
	}{
		"default":   {"", "", 256},
		"config":    {`{"prefix_tokens":64}`, "", 64},
		"overrides": {`{"prefix_tokens":64}`, "32", 32},
	} {
		t.Run(name, func(t *testing.T) {
			s := stage(t, r, g.Bytes(), c.config)
			tab := table(s, 2)
			tab.SetPrefix(16, hashes)
			if c.override != "" {
				tab.Overrides = map[string]json.RawMessage{"prefix_tokens": json.RawMessage(c.override)}
			}
			got, _ := scoresOf(t, s, tab)
			if want := tab.PrefixHash(c.depth); got[0] != want {
				t.Errorf("got %v, want %v", got[0], want)
			}
		})
	}
}
