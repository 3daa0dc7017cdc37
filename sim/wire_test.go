package sim_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"testing"

	"github.com/tinylib/msgp/msgp"

	"github.com/routerd/routerd/sim"
)

// readCapture returns the frames of each message of a capture.
func readCapture(t *testing.T, name string) [][][]byte {
	t.Helper()
	raw, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	next := func() int {
		n := binary.LittleEndian.Uint32(raw)
		raw = raw[4:]
		return int(n)
	}
	var messages [][][]byte
	for len(raw) > 0 {
		frames := make([][]byte, next())
		for i := range frames {
			n := next()
			frames[i], raw = raw[:n], raw[n:]
		}
		messages = append(messages, frames)
	}
	return messages
}

// wireBatch is a batch in the form that tests work with.
type wireBatch struct {
	at     float64
	rank   int
	events []sim.CapturedEvent
	ids    map[string]int // adapter name → lora_id
}

// eventFields are the names of the array form's elements after the tag.
var eventFields = map[string][]string{
	"BlockStored": {
		"block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name",
		"extra_keys", "group_idx", "kv_cache_spec_kind", "kv_cache_spec_sliding_window",
	},
	"BlockRemoved":     {"block_hashes", "medium", "group_idx"},
	"AllBlocksCleared": {},
}

// decodeBatch reads a payload of either form.
func decodeBatch(payload []byte) (wireBatch, error) {
	b := wireBatch{ids: map[string]int{}}
	v, left, err := msgp.ReadIntfBytes(payload)
	if err != nil || len(left) > 0 {
		return b, fmt.Errorf("payload: %w, %d bytes left", err, len(left))
	}
	parts, ok := v.([]any)
	if !ok || len(parts) != 3 {
		return b, fmt.Errorf("batch is %T", v)
	}
	b.at = parts[0].(float64)
	b.rank = int(asNumber(parts[2]))
	for _, raw := range parts[1].([]any) {
		fields := map[string]any{}
		switch e := raw.(type) {
		case map[string]any:
			fields = e
		case []any:
			kind := e[0].(string)
			fields["type"] = kind
			for i, name := range eventFields[kind] {
				fields[name] = e[1+i]
			}
		}
		b.events = append(b.events, b.event(fields))
	}
	return b, nil
}

func (b wireBatch) event(f map[string]any) sim.CapturedEvent {
	e := sim.CapturedEvent{Kind: f["type"].(string), Parent: asHash(f["parent_block_hash"])}
	if list, ok := f["block_hashes"].([]any); ok {
		for _, h := range list {
			e.Hashes = append(e.Hashes, asHash(h))
		}
	}
	if list, ok := f["token_ids"].([]any); ok {
		for _, tok := range list {
			e.Tokens = append(e.Tokens, uint32(asNumber(tok)))
		}
		e.BlockSize = int(asNumber(f["block_size"]))
	}
	if name, ok := f["lora_name"].(string); ok {
		e.Adapter = name
		b.ids[name] = int(asNumber(f["lora_id"]))
	}
	return e
}

func asNumber(v any) uint64 {
	switch n := v.(type) {
	case uint64:
		return n
	case int64:
		return uint64(n)
	}
	return 0
}

func asHash(v any) any {
	switch h := v.(type) {
	case []byte:
		return h
	case nil:
		return nil
	default:
		return asNumber(h)
	}
}

// hashText is a hash as GET /sim/blocks writes it.
func hashText(h any) string {
	if raw, ok := h.([]byte); ok {
		return fmt.Sprintf("x:%x", raw)
	}
	return fmt.Sprint(h)
}

func TestEncoderWritesTheBytesOfVLLM(t *testing.T) {
	for _, tc := range []struct {
		capture string
		form    sim.EventForm
		hashes  sim.HashForm
	}{
		{"vllm_0_33_0_lora.bin", sim.FormMap, sim.HashInt},
		{"vllm_0_33_0_bytes.bin", sim.FormMap, sim.HashBytes},
		{"vllm_0_33_0_clear_restart.bin", sim.FormMap, sim.HashInt},
		{"vllm_0_23_0_lora.bin", sim.FormArray, sim.HashInt},
		{"vllm_0_23_0_clear_restart.bin", sim.FormArray, sim.HashInt},
	} {
		t.Run(tc.capture, func(t *testing.T) {
			for i, frames := range readCapture(t, tc.capture) {
				b, err := decodeBatch(frames[2])
				if err != nil {
					t.Fatal(err)
				}
				got := sim.EncodeCaptured(tc.form, tc.hashes, b.at, b.events, b.ids, b.rank)
				if !bytes.Equal(got, frames[2]) {
					t.Errorf("message %d:\n got %.200x\nwant %.200x", i, got, frames[2])
				}
			}
		})
	}
}
