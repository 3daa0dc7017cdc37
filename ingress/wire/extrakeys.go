package wire

import (
	"github.com/routerd/routerd/kvcache"
)

// extraKeys is what an event says of its blocks beside their tokens: the cache salt, the images and other items that
// touch a block, and what cannot be understood. Engines give one list of extra keys per block, with bare texts
// (adapter, then cache salt), pairs of an item's identifier and its offset, or tagged tuples of all these; others give
// a list of media.
type extraKeys struct {
	texts      [3][]byte // the first bare texts of the first block
	salt       []byte    // a salt that was tagged as one
	keyed      []item    // of the extra keys
	media      []item    // of the list of media; these count where there are any
	opaque     bool
	opaqueFrom int
}

// item is an image, or another thing that is not in the tokens, in a block that it touches.
type item struct {
	block int
	hash  uint64
}

func (k *extraKeys) mark(block int) {
	if !k.opaque || block < k.opaqueFrom {
		k.opaque, k.opaqueFrom = true, block
	}
}

// eachBlock reads a list with a value or nil for each block; read takes a value, or marks the block.
func (k *extraKeys) eachBlock(c *cursor, read func(block int) bool) bool {
	blocks, ok := c.array()
	if !ok {
		return false
	}
	for block := range blocks {
		if c.bad {
			return false
		}
		if !c.isNil() && !read(block) {
			return false
		}
	}
	return !c.bad
}

// readKeys reads the extra keys of all blocks of an event.
func (b *Batch) readKeys(c *cursor, k *extraKeys) bool {
	from := len(b.items)
	ok := k.eachBlock(c, func(block int) bool {
		keys, ok := c.array()
		if !ok {
			return false
		}
		texts := 0
		for range keys {
			if text, ok := c.text(false); ok {
				b.bareKey(k, block, texts, text)
				texts++
				continue
			}
			start := c.pos
			if !b.tuple(c, k, block) {
				k.mark(block)
			}
			if !c.bad {
				c.pos = start
			}
			c.skip(5)
		}
		return true
	})
	k.keyed = b.items[from:len(b.items):len(b.items)]
	return ok
}

// bareKey takes bare text number i of a block. The adapter's name stands first in each block; the salt is in the first
// block alone; and an identifier without its offset is told by its form.
func (b *Batch) bareKey(k *extraKeys, block, i int, text []byte) {
	switch {
	case block == 0 && i < len(k.texts):
		k.texts[i] = text
	case block > 0 && i == 0 && string(text) == string(k.texts[0]):
	case block > 0 && kvcache.IsDigest(text):
		b.items = append(b.items, item{block, kvcache.ItemHash(text)})
	default:
		k.mark(block)
	}
}

// tuple reads a key that is no bare text; false is one that is not known.
func (b *Batch) tuple(c *cursor, k *extraKeys, block int) bool {
	n, ok := c.array()
	if !ok || n < 2 {
		return false
	}
	first, ok := c.text(false)
	if !ok {
		return false
	}
	if n == 2 {
		if _, _, ok = c.integer(); ok {
			b.items = append(b.items, item{block, kvcache.ItemHash(first)})
			return true
		}
	}
	second, ok := c.text(false)
	if !ok {
		return false
	}
	switch {
	case n == 2 && string(first) == "cache_salt" && block == 0:
		k.salt = second
		return true
	case n == 3 && string(first) == "lora":
		return true
	case n == 3 && string(first) == "mm":
		if _, _, ok = c.integer(); ok {
			b.items = append(b.items, item{block, kvcache.ItemHash(second)})
		}
		return ok
	}
	return false
}

// readMedia reads the list of the media of each block.
func (b *Batch) readMedia(c *cursor, k *extraKeys) bool {
	from := len(b.items)
	ok := k.eachBlock(c, func(block int) bool {
		start, had := c.pos, len(b.items)
		if !b.objects(c, block) {
			b.items = b.items[:had]
			k.mark(block)
		}
		if !c.bad {
			c.pos = start
		}
		c.skip(4)
		return true
	})
	k.media = b.items[from:len(b.items):len(b.items)]
	return ok
}

// objects reads the media of one block, {"mm_objects": [{"mm_hash": number}]}. It stops at what it cannot read.
func (b *Batch) objects(c *cursor, block int) bool {
	listed := false
	ok := members(c, 5, "mm_objects", func() bool {
		n, ok := c.array()
		listed = ok
		for i := 0; ok && i < n; i++ {
			ok = b.object(c, block)
		}
		return ok
	})
	return ok && listed
}

func (b *Batch) object(c *cursor, block int) bool {
	hashed := false
	ok := members(c, 7, "mm_hash", func() bool {
		bits, _, ok := c.integer()
		if ok && !hashed {
			b.items = append(b.items, item{block, bits})
			hashed = true
		}
		return ok
	})
	return ok && hashed
}

// members walks over a map whose values are depth deep, and has one member's value read; false is no map, or a value
// that cannot be read.
func members(c *cursor, depth int, name string, read func() bool) bool {
	n, ok := c.mapping()
	if !ok {
		return false
	}
	for range n {
		key, ok := c.text(true)
		switch {
		case !ok:
			c.skip(depth)
			c.skip(depth)
		case string(key) != name:
			c.skip(depth)
		case !read():
			return false
		}
		if c.bad {
			return false
		}
	}
	return true
}

// apply puts the keys into a store: of the bare texts the one that is not the adapter's name is the salt.
func (k *extraKeys) apply(ev *kvcache.Event, b *Batch) {
	salt, spare := k.texts[0], k.texts[1]
	if ev.Adapter != "" && string(salt) == ev.Adapter {
		salt, spare = spare, k.texts[2]
	} else if spare == nil {
		spare = k.texts[2]
	}
	if k.salt != nil {
		salt, spare = k.salt, salt
	}
	if spare != nil || len(salt) > maxText || ev.Salt != "" && len(salt) > 0 && string(salt) != ev.Salt {
		k.mark(0)
	}
	if ev.Salt == "" && len(salt) > 0 && len(salt) <= maxText {
		ev.Salt = b.intern(salt)
	}
	ev.Opaque = k.opaque && k.opaqueFrom < len(ev.Hashes)
	if ev.Opaque {
		ev.OpaqueFrom = k.opaqueFrom
	}
	items := k.media
	if len(items) == 0 {
		items = k.keyed
	}
	ev.Items = b.byBlock(items, len(ev.Hashes))
}

// byBlock lists the hashes of items, which are in the order of their blocks, for each block up to the last that has
// any. What is beyond the event's blocks is left out.
func (b *Batch) byBlock(items []item, blocks int) [][]uint64 {
	for len(items) > 0 && items[len(items)-1].block >= blocks {
		items = items[:len(items)-1]
	}
	if len(items) == 0 {
		return nil
	}
	from := len(b.perBlock)
	for block := range items[len(items)-1].block + 1 {
		start := len(b.itemHashes)
		for len(items) > 0 && items[0].block == block {
			b.itemHashes = append(b.itemHashes, items[0].hash)
			items = items[1:]
		}
		var own []uint64
		if end := len(b.itemHashes); end > start {
			own = b.itemHashes[start:end:end]
		}
		b.perBlock = append(b.perBlock, own)
	}
	return b.perBlock[from:len(b.perBlock):len(b.perBlock)]
}
