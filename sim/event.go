package sim

import (
	"encoding/binary"

	"github.com/tinylib/msgp/msgp"
)

// eventKind is the wire name of an event.
type eventKind string

const (
	blockStored      eventKind = "BlockStored"
	blockRemoved     eventKind = "BlockRemoved"
	allBlocksCleared eventKind = "AllBlocksCleared"
)

// event is one change of a rank's cache. The fields after kind are empty where
// the kind has none.
type event struct {
	kind    eventKind
	hashes  []digest
	parent  *digest // nil for the first block
	tokens  string  // little-endian uint32 values
	adapter string
}

// encoder writes batches in the forms of one engine configuration.
type encoder struct {
	form      EventForm
	hashForm  HashForm
	blockSize int
	adapterID func(name string) int // its lora_id
}

// batch appends [at, events, rank]; at is in seconds since 1970.
func (c encoder) batch(b []byte, at float64, events []event, rank int) []byte {
	b = msgp.AppendArrayHeader(b, 3)
	b = msgp.AppendFloat64(b, at)
	b = msgp.AppendArrayHeader(b, uint32(len(events)))
	for _, e := range events {
		b = c.event(b, e)
	}
	return msgp.AppendUint64(b, uint64(rank))
}

// event appends one event: a map with the key "type" first (vLLM from 0.24), or
// an array that begins with the tag and ends as vLLM 0.23 ends it.
func (c encoder) event(b []byte, e event) []byte {
	switch e.kind {
	case blockStored:
		b = c.open(b, e.kind, 11, 12)
		b = c.hashList(c.key(b, "block_hashes"), e.hashes)
		b = c.parent(c.key(b, "parent_block_hash"), e.parent)
		b = tokenList(c.key(b, "token_ids"), e.tokens)
		b = msgp.AppendUint64(c.key(b, "block_size"), uint64(c.blockSize))
		b = c.loraID(c.key(b, "lora_id"), e.adapter)
		b = msgp.AppendString(c.key(b, "medium"), "GPU")
		b = textOrNil(c.key(b, "lora_name"), e.adapter)
		b = extraKeys(c.key(b, "extra_keys"), e)
		b = msgp.AppendUint64(c.key(b, "group_idx"), 0)
		b = msgp.AppendString(c.key(b, "kv_cache_spec_kind"), "full_attention")
		if c.form == FormArray {
			b = msgp.AppendNil(b) // kv_cache_spec_sliding_window
		}
	case blockRemoved:
		b = c.open(b, e.kind, 4, 4)
		b = c.hashList(c.key(b, "block_hashes"), e.hashes)
		b = msgp.AppendString(c.key(b, "medium"), "GPU")
		b = msgp.AppendUint64(c.key(b, "group_idx"), 0)
	case allBlocksCleared:
		b = c.open(b, e.kind, 1, 1)
	}
	return b
}

// open starts an event of so many map entries or array elements, with its tag.
func (c encoder) open(b []byte, kind eventKind, entries, elements uint32) []byte {
	if c.form == FormArray {
		return msgp.AppendString(msgp.AppendArrayHeader(b, elements), string(kind))
	}
	if kind == blockStored {
		// vLLM's encoder writes a map16 here whatever the number of entries.
		b = append(b, 0xde, 0, byte(entries))
	} else {
		b = msgp.AppendMapHeader(b, entries)
	}
	return msgp.AppendString(msgp.AppendString(b, "type"), string(kind))
}

// key appends a field's name where the form has names.
func (c encoder) key(b []byte, name string) []byte {
	if c.form == FormArray {
		return b
	}
	return msgp.AppendString(b, name)
}

func (c encoder) hashList(b []byte, hashes []digest) []byte {
	b = msgp.AppendArrayHeader(b, uint32(len(hashes)))
	for _, h := range hashes {
		b = c.hash(b, h)
	}
	return b
}

func (c encoder) hash(b []byte, h digest) []byte {
	if c.hashForm == HashBytes {
		return msgp.AppendBytes(b, h[:])
	}
	return msgp.AppendUint64(b, h.number())
}

func (c encoder) parent(b []byte, parent *digest) []byte {
	if parent == nil {
		return msgp.AppendNil(b)
	}
	return c.hash(b, *parent)
}

func (c encoder) loraID(b []byte, adapter string) []byte {
	if adapter == "" {
		return msgp.AppendNil(b)
	}
	return msgp.AppendUint64(b, uint64(c.adapterID(adapter)))
}

func tokenList(b []byte, tokens string) []byte {
	raw := []byte(tokens)
	b = msgp.AppendArrayHeader(b, uint32(len(raw)/tokenBytes))
	for ; len(raw) > 0; raw = raw[tokenBytes:] {
		b = msgp.AppendUint64(b, uint64(binary.LittleEndian.Uint32(raw)))
	}
	return b
}

// extraKeys are nil for each block, or a list with the adapter's name.
func extraKeys(b []byte, e event) []byte {
	b = msgp.AppendArrayHeader(b, uint32(len(e.hashes)))
	for range e.hashes {
		if e.adapter == "" {
			b = msgp.AppendNil(b)
			continue
		}
		b = msgp.AppendString(msgp.AppendArrayHeader(b, 1), e.adapter)
	}
	return b
}

func textOrNil(b []byte, s string) []byte {
	if s == "" {
		return msgp.AppendNil(b)
	}
	return msgp.AppendString(b, s)
}
