package wire_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/routerd/routerd/ingress/wire"
	"github.com/routerd/routerd/ingress/wire/wiretest"
)

var update = flag.Bool("update", false, "write the captures that are made by hand")

func TestTheHandMadeCapturesAreWhatTheirDescriptionsSay(t *testing.T) {
	for _, name := range wiretest.Names(t, "handmade_*") {
		var file []byte
		for _, m := range wiretest.Description(t, name).Messages {
			seq, err := strconv.ParseUint(m.Seq, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			events := arr{}
			for _, e := range m.Events {
				events = append(events, mapOf(t, e))
			}
			file = binary.LittleEndian.AppendUint32(file, 3)
			for _, frame := range [][]byte{[]byte(m.Topic), wire.SequenceFrame(seq), pack(arr{m.TS, events, *m.DPRank})} {
				file = append(binary.LittleEndian.AppendUint32(file, uint32(len(frame))), frame...)
			}
		}
		path := filepath.Join(wiretest.Dir(), name+".bin")
		if *update {
			if err := os.WriteFile(path, file, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if is, err := os.ReadFile(path); err != nil || !bytes.Equal(is, file) {
			t.Errorf("%s is not what its description says (%v): run with -update", name, err)
		}
	}
}

// mapOf is an event as a map without what is absent.
func mapOf(t *testing.T, e wiretest.Event) obj {
	t.Helper()
	hashes, tokens := arr{}, arr{}
	for _, h := range e.Hashes {
		hashes = append(hashes, number(t, h))
	}
	o := obj{{"type", e.Type}}
	if e.Type != "AllBlocksCleared" {
		o = append(o, kv{"block_hashes", hashes})
	}
	if e.Type != "BlockStored" {
		return o
	}
	for _, id := range e.Tokens {
		tokens = append(tokens, number(t, string(id)))
	}
	o = append(o, kv{"parent_block_hash", nil}, kv{"token_ids", tokens}, kv{"block_size", e.BlockSize})
	if e.Parent != nil {
		o[2].val = number(t, *e.Parent)
	}
	if e.LoraName != "" {
		o = append(o, kv{"lora_name", e.LoraName})
	}
	if e.Salt != "" {
		o = append(o, kv{"cache_salt", e.Salt})
	}
	if len(e.Media) > 0 {
		infos := arr{}
		for _, m := range e.Media {
			infos = append(infos, plain(t, m))
		}
		o = append(o, kv{"block_mm_infos", infos})
	}
	return o
}

func number(t *testing.T, text string) any {
	t.Helper()
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// plain turns JSON into what pack takes; a text of digits alone is an unsigned number.
func plain(t *testing.T, text json.RawMessage) any {
	t.Helper()
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	return packable(v)
}

func packable(v any) any {
	switch x := v.(type) {
	case map[string]any:
		var o obj
		for _, key := range slices.Sorted(maps.Keys(x)) {
			o = append(o, kv{key, packable(x[key])})
		}
		return o
	case []any:
		a := arr{}
		for _, val := range x {
			a = append(a, packable(val))
		}
		return a
	case float64:
		return int(x)
	case string:
		if n, err := strconv.ParseUint(x, 10, 64); err == nil {
			return n
		}
	}
	return v
}
