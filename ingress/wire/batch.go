package wire

import (
	"errors"
	"fmt"

	"github.com/routerd/routerd/kvcache"
)

// MaxPayload is the longest payload that is looked at, in bytes.
const MaxPayload = 64 << 20

// keepArena is about the most tokens or hashes that a Batch keeps room for between decodes.
const keepArena = 1 << 18

// maxTexts bounds the adapter names and salts that a Batch remembers to save allocations.
const maxTexts = 1024

// ErrCorrupt is wrapped by every error of DecodeBatch and ParseLive: the message as a whole cannot be used.
var ErrCorrupt = errors.New("corrupt message")

// Batch is a decoded payload. It may be reused for the next one: Events and everything they point at, texts apart,
// are then overwritten. The zero value is ready; it is owned by one goroutine.
type Batch struct {
	// Events are the good events in the order in which they take effect.
	Events []kvcache.Event
	// Drops counts the events left out, by reason.
	Drops kvcache.DropCounts
	// Rank is the data-parallel rank that the engine wrote, when HasRank is set.
	Rank    uint64
	HasRank bool

	tokens []uint32
	hashes []kvcache.EngineHash
	texts  map[string]string

	items      []item // of extra keys and media as they are read
	itemHashes []uint64
	perBlock   [][]uint64 // of itemHashes
}

// DecodeBatch decodes payload into b. The only errors are those of a payload that is no batch from its first to its
// last byte; they wrap ErrCorrupt, and b then holds no event. It does not keep payload.
func DecodeBatch(payload []byte, b *Batch) error {
	b.reset()
	if len(payload) > MaxPayload {
		return fmt.Errorf("decode batch: %w: %d bytes, at most %d are allowed", ErrCorrupt, len(payload), MaxPayload)
	}
	c := cursor{buf: payload}
	if what := b.decode(&c); what != "" {
		b.reset()
		return fmt.Errorf("decode batch: %w: %s", ErrCorrupt, what)
	}
	return nil
}

func (b *Batch) decode(c *cursor) (fault string) {
	n, ok := c.array()
	if !ok || n < 2 {
		return "no array of time, events and rank"
	}
	c.skip(1)
	events, ok := c.array()
	if !ok {
		return "the second element is no array of events"
	}
	for i := 0; i < events && !c.bad; i++ {
		b.event(c)
	}
	if n > 2 && !c.bad {
		b.rank(c)
	}
	for i := 3; i < n && !c.bad; i++ {
		c.skip(1)
	}
	switch {
	case c.bad:
		return "truncated, nested too deep or not msgpack"
	case c.left() > 0:
		return "bytes after the batch"
	}
	return ""
}

// rank reads the batch's rank. A value that cannot be a rank counts as one that no worker has.
func (b *Batch) rank(c *cursor) {
	if c.isNil() {
		return
	}
	bits, neg, ok := c.integer()
	if !ok {
		c.skip(1)
	}
	if b.Rank, b.HasRank = bits, true; neg || !ok {
		b.Rank = ^uint64(0)
	}
}

func (b *Batch) reset() {
	b.Events = b.Events[:0]
	b.tokens = b.tokens[:0]
	b.hashes = b.hashes[:0]
	b.items, b.itemHashes, b.perBlock = b.items[:0], b.itemHashes[:0], b.perBlock[:0]
	if cap(b.tokens) > keepArena {
		b.tokens = nil
	}
	if cap(b.hashes) > keepArena {
		b.hashes = nil
	}
	if cap(b.Events) > keepArena/64 {
		b.Events = nil
	}
	if cap(b.items)+cap(b.itemHashes)+cap(b.perBlock) > keepArena/2 {
		b.items, b.itemHashes, b.perBlock = nil, nil, nil
	}
	b.Drops = kvcache.DropCounts{}
	b.Rank, b.HasRank = 0, false
}

// intern returns raw as a string that outlives the payload, without an allocation for a text seen lately.
func (b *Batch) intern(raw []byte) string {
	if s, ok := b.texts[string(raw)]; ok {
		return s
	}
	if b.texts == nil || len(b.texts) >= maxTexts {
		b.texts = make(map[string]string)
	}
	s := string(raw)
	b.texts[s] = s
	return s
}
