package wire

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/routerd/routerd/kvcache"
)

// field names a part of an event.
type field uint8

const (
	fieldIgnored field = iota
	fieldTag
	fieldHashes
	fieldParent
	fieldTokens
	fieldBlockSize
	fieldLoraID
	fieldMedium
	fieldAdapter // in arrays of one engine a map with the salt stands here
	fieldExtraKeys
	fieldMedia
	fieldGroup
	fieldKind
	fieldLocality
	fieldSalt
)

// readsNil tells that a nil is a value of the field and not its absence.
func (f field) readsNil() bool { return f == fieldHashes || f == fieldTokens || f == fieldTag }

func fieldOf(key []byte) field {
	switch string(key) {
	case "type":
		return fieldTag
	case "block_hashes":
		return fieldHashes
	case "parent_block_hash":
		return fieldParent
	case "token_ids":
		return fieldTokens
	case "block_size":
		return fieldBlockSize
	case "lora_id":
		return fieldLoraID
	case "medium":
		return fieldMedium
	case "lora_name":
		return fieldAdapter
	case "extra_keys":
		return fieldExtraKeys
	case "block_mm_infos":
		return fieldMedia
	case "group_idx":
		return fieldGroup
	case "kv_cache_spec_kind":
		return fieldKind
	case "locality":
		return fieldLocality
	case "cache_salt":
		return fieldSalt
	}
	return fieldIgnored
}

// positions returns the fields of an array event after its tag.
func positions(tag []byte) []field {
	switch string(tag) {
	case "BlockStored":
		return []field{
			fieldHashes, fieldParent, fieldTokens, fieldBlockSize, fieldLoraID, fieldMedium, fieldAdapter,
			fieldExtraKeys, fieldGroup, fieldKind, fieldIgnored, fieldLocality,
		}
	case "BlockRemoved":
		return []field{fieldHashes, fieldMedium, fieldGroup, fieldLocality}
	}
	return nil
}

// read reads the value of f into r; false means that it has the wrong type or range.
func (b *Batch) read(c *cursor, r *record, f field) (ok bool) {
	switch f {
	case fieldTag:
		r.tag, ok = c.text(false)
	case fieldHashes:
		r.ev.Hashes, ok = b.hashList(c)
		r.hashed = ok
	case fieldParent:
		r.ev.Parent, ok = hash(c)
		r.ev.HasParent = ok
	case fieldTokens:
		ok = b.tokenList(c, &r.ev)
	case fieldBlockSize:
		ok = blockSize(c, r)
	case fieldLoraID:
		r.ev.LoraID, ok = signed(c, math.MinInt64, math.MaxInt64)
	case fieldGroup:
		var g int64
		g, ok = signed(c, 0, math.MaxInt32)
		r.ev.Group = int32(g)
	case fieldAdapter:
		ok = b.adapter(c, r)
	case fieldExtraKeys:
		ok = b.readKeys(c, &r.keys)
	case fieldMedia:
		ok = b.readMedia(c, &r.keys)
	default:
		ok = b.word(c, r, f)
	}
	return ok
}

// word reads the fields that hold one text.
func (b *Batch) word(c *cursor, r *record, f field) bool {
	s, ok := c.text(false)
	if !ok || len(s) > maxText {
		return false
	}
	switch f {
	case fieldMedium:
		r.ev.Tier, ok = kvcache.ParseMedium(string(s))
		r.badMedium = !ok
	case fieldKind:
		r.ev.Attention = attention(s)
	case fieldLocality:
		r.remote = string(s) != "LOCAL" && string(s) != "local"
	case fieldSalt:
		r.ev.Salt = b.intern(s)
	}
	return true
}

func attention(kind []byte) kvcache.Attention {
	switch string(kind) {
	case "full_attention", "mla_attention", "sink_full_attention":
		return kvcache.AttentionPrefix
	case "sliding_window", "sliding_window_mla", "mamba", "chunked_local_attention", "encoder_only_attention", "cross_attention":
		return kvcache.AttentionWindowed
	}
	return kvcache.AttentionUnknown
}

// adapter reads an adapter name, or the map of metadata that stands in its place.
func (b *Batch) adapter(c *cursor, r *record) bool {
	n, ok := c.mapping()
	if !ok {
		s, ok := c.text(false)
		if !ok || len(s) > maxText {
			return false
		}
		r.ev.Adapter = b.intern(s)
		return true
	}
	for range n {
		key, ok := c.text(true)
		if !ok || string(key) != "cache_salt" {
			if !ok {
				c.skip(4)
			}
			c.skip(4)
			continue
		}
		if c.isNil() {
			continue
		}
		if !b.word(c, r, fieldSalt) {
			return false
		}
	}
	return !c.bad
}

func blockSize(c *cursor, r *record) bool {
	n, ok := signed(c, 0, MaxBlockSize)
	r.ev.BlockSize, r.sized = int(n), ok
	return ok
}

func signed(c *cursor, lo, hi int64) (int64, bool) {
	bits, neg, ok := c.integer()
	if n := int64(bits); ok && (neg || n >= 0) && n >= lo && n <= hi {
		return n, true
	}
	return 0, false
}

// hash reads a block hash: an integer by its 64-bit pattern, or a string or byte string.
func hash(c *cursor) (kvcache.EngineHash, bool) {
	if bits, _, ok := c.integer(); ok {
		return kvcache.NumberHash(bits), true
	}
	raw, ok := c.text(true)
	if !ok {
		return kvcache.EngineHash{}, false
	}
	return kvcache.BytesHash(raw)
}

func (b *Batch) hashList(c *cursor) ([]kvcache.EngineHash, bool) {
	n, ok := c.array()
	if !ok {
		return nil, false
	}
	from := len(b.hashes)
	for range n {
		h, ok := hash(c)
		if !ok {
			b.hashes = b.hashes[:from]
			return nil, false
		}
		b.hashes = append(b.hashes, h)
	}
	return b.hashes[from:len(b.hashes):len(b.hashes)], true
}

// tokenList reads token ids, or pairs of neighbouring ids that overlap by one.
func (b *Batch) tokenList(c *cursor, ev *kvcache.Event) bool {
	n, ok := c.array()
	if !ok {
		return false
	}
	from := len(b.tokens)
	ev.Bigram = n > 0 && !c.bad && c.buf[c.pos]&0xf0 == 0x90
	if ev.Bigram {
		ok = b.pairs(c, n)
	} else {
		ok = b.ids(c, n)
	}
	if !ok {
		b.tokens = b.tokens[:from]
		return false
	}
	ev.Tokens = b.tokens[from:len(b.tokens):len(b.tokens)]
	return true
}

// idForm is a form that token ids are mostly in: size bytes, whose value is the big-endian number of the 8 bytes from
// the first on, shifted left by so many bits and then right. Of the other forms the size is 0.
type idForm struct{ size, left, right uint8 }

// idForms are the forms by their first bytes.
var idForms = func() (t [256]idForm) {
	for tag := range 0x80 {
		t[tag] = idForm{1, 0, 56}
	}
	t[0xcc], t[0xcd], t[0xce] = idForm{2, 8, 56}, idForm{3, 8, 48}, idForm{5, 8, 32}
	return t
}()

// ids reads n token ids. Nearly all that is in an event are these, and which form the next one has cannot be foreseen:
// it is looked up, since branches would mostly go wrong.
func (b *Batch) ids(c *cursor, n int) bool {
	from := len(b.tokens)
	tokens := slices.Grow(b.tokens, n)[:from+n]
	out, buf, pos := tokens[from:], c.buf, c.pos
	for i := range out {
		if pos+8 <= len(buf) {
			if f := &idForms[buf[pos]]; f.size > 0 {
				out[i] = uint32(binary.BigEndian.Uint64(buf[pos:pos+8]) << (f.left & 63) >> (f.right & 63))
				pos += int(f.size)
				continue
			}
		}
		c.pos = pos
		id, ok := tokenID(c)
		if !ok {
			return false
		}
		out[i], pos = id, c.pos
	}
	b.tokens, c.pos = tokens, pos
	return true
}

func (b *Batch) pairs(c *cursor, n int) bool {
	for i := range n {
		if !b.pair(c, i == 0) {
			return false
		}
	}
	return true
}

func (b *Batch) token(c *cursor) bool {
	id, ok := tokenID(c)
	if ok {
		b.tokens = append(b.tokens, id)
	}
	return ok
}

func tokenID(c *cursor) (id uint32, ok bool) {
	bits, neg, ok := c.integer()
	if !ok || neg || bits > math.MaxUint32 {
		return 0, false
	}
	return uint32(bits), true
}

func (b *Batch) pair(c *cursor, first bool) bool {
	if n, ok := c.array(); !ok || n != 2 {
		return false
	}
	if !b.token(c) {
		return false
	}
	if last := len(b.tokens) - 1; !first {
		if b.tokens[last] != b.tokens[last-1] {
			return false
		}
		b.tokens = b.tokens[:last]
	}
	return b.token(c)
}
