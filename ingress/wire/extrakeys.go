package wire

import (
	"github.com/routerd/routerd/kvcache"
)

// extraKeys is what an event's extra keys say: what, beside its tokens, decides a block's identity. Engines give one
// list per block; a list holds bare texts (adapter, then cache salt), pairs of a medium's identifier and its offset,
// or tagged tuples of either.
type extraKeys struct {
	first, second []byte // the bare texts of the first block
	salt          []byte // a salt that was tagged as one
	opaque        bool
	opaqueFrom    int
}

func (k *extraKeys) mark(block int) {
	if !k.opaque || block < k.opaqueFrom {
		k.opaque, k.opaqueFrom = true, block
	}
}

// read reads the extra keys of all blocks of an event.
func (k *extraKeys) read(c *cursor) bool {
	blocks, ok := c.array()
	if !ok {
		return false
	}
	for block := range blocks {
		if c.bad {
			return false
		}
		if c.isNil() {
			continue
		}
		keys, ok := c.array()
		if !ok {
			return false
		}
		for i := range keys {
			k.key(c, block, i)
		}
	}
	return !c.bad
}

// key reads key i of a block.
func (k *extraKeys) key(c *cursor, block, i int) {
	if text, ok := c.text(false); ok {
		switch {
		case block == 0 && i == 0:
			k.first = text
		case block == 0 && i == 1:
			k.second = text
		case i == 0 && string(text) == string(k.first):
		default:
			k.mark(block)
		}
		return
	}
	start := c.pos
	n, ok := c.array()
	if !ok {
		c.skip(5)
		k.mark(block)
		return
	}
	tag, tagged := []byte(nil), false
	if n > 0 {
		tag, tagged = c.text(false)
	}
	salt, isSalt := []byte(nil), false
	if tagged && n == 2 && string(tag) == "cache_salt" {
		salt, isSalt = c.text(false)
	}
	switch {
	case isSalt && block == 0:
		k.salt = salt
	case tagged && n == 3 && string(tag) == "lora":
	default:
		k.mark(block)
	}
	if !c.bad {
		c.pos = start
	}
	c.skip(5)
}

// readMedia reads the list of the media of each block; a block with any is opaque.
func (k *extraKeys) readMedia(c *cursor) bool {
	blocks, ok := c.array()
	if !ok {
		return false
	}
	for block := range blocks {
		if c.bad {
			return false
		}
		if !c.isNil() {
			c.skip(4)
			k.mark(block)
		}
	}
	return !c.bad
}

// apply puts the keys into a store: of the bare texts the one that is not the adapter's name is the salt.
func (k *extraKeys) apply(ev *kvcache.Event, b *Batch) {
	salt, spare := k.first, k.second
	if ev.Adapter != "" && string(salt) == ev.Adapter {
		salt, spare = spare, nil
	}
	if k.salt != nil {
		salt, spare = k.salt, salt
	}
	if spare != nil || len(salt) > maxText {
		k.mark(0)
	}
	if ev.Salt == "" && len(salt) > 0 && len(salt) <= maxText {
		ev.Salt = b.intern(salt)
	}
	ev.Opaque = k.opaque && k.opaqueFrom < len(ev.Hashes)
	if ev.Opaque {
		ev.OpaqueFrom = k.opaqueFrom
	}
}
