package wire

import (
	"github.com/routerd/routerd/kvcache"
)

// MaxBlockSize is the largest block size, in tokens, that an event may name.
const MaxBlockSize = 1 << 20

// maxText is the longest adapter name, salt or other text, in bytes, that an event may carry.
const maxText = 4096

// record is what has been read of one event so far.
type record struct {
	tag       []byte
	ev        kvcache.Event
	wrong     bool // a known field has a value that it cannot have
	sized     bool // the event names a block size
	hashed    bool // the event has a list of hashes
	badMedium bool
	remote    bool
	keys      extraKeys
}

// event reads one event and adds it to b, or counts why not. It leaves c behind the event whatever that holds.
func (b *Batch) event(c *cursor) {
	var r record
	start := c.pos
	if n, ok := c.mapping(); ok {
		b.mapEvent(c, &r, n)
	} else if n, ok := c.array(); ok {
		b.arrayEvent(c, &r, n)
	} else {
		r.wrong = true
	}
	if c.bad {
		return
	}
	if c.pos == start {
		c.skip(2)
	}
	if reason, ok := b.accept(&r); !ok {
		b.Drops[reason]++
		return
	}
	b.Events = append(b.Events, r.ev)
}

func (b *Batch) mapEvent(c *cursor, r *record, n int) {
	for range n {
		if c.bad {
			return
		}
		key, ok := c.text(true)
		if !ok {
			c.skip(3)
			c.skip(3)
			continue
		}
		b.field(c, r, fieldOf(key))
	}
}

// arrayEvent reads the fields of an event by position. Engines cut trailing fields that have their default.
func (b *Batch) arrayEvent(c *cursor, r *record, n int) {
	if n == 0 {
		r.wrong = true
		return
	}
	b.field(c, r, fieldTag)
	order := positions(r.tag)
	for i := 1; i < n && !c.bad; i++ {
		f := fieldIgnored
		if len(order) > 0 {
			f, order = order[0], order[1:]
		}
		if f == fieldGroup && len(order) > 1 && holdsMedia(*c, i+1 < n) {
			f, order = fieldMedia, append([]field{fieldGroup}, order...)
		}
		b.field(c, r, f)
	}
}

// holdsMedia tells whether the value at the place of the cache group is a list of media: one engine family has them
// there, before the group. A nil there is taken for absent media when an integer follows.
func holdsMedia(c cursor, more bool) bool {
	if _, ok := c.array(); ok {
		return true
	}
	if !c.isNil() || !more {
		return false
	}
	_, _, ok := c.integer()
	return ok
}

// field reads the value of f. A value of the wrong type is passed over and noted.
func (b *Batch) field(c *cursor, r *record, f field) {
	start := c.pos
	if f != fieldIgnored && (f.readsNil() || !c.isNil()) {
		if !b.read(c, r, f) {
			r.wrong = true
			if !c.bad {
				c.pos = start
			}
		}
	}
	if c.pos == start {
		c.skip(3)
	}
}

// accept checks an event that was read whole and completes it.
func (b *Batch) accept(r *record) (kvcache.DropReason, bool) {
	ev := &r.ev
	switch string(r.tag) {
	case "BlockStored":
		ev.Kind = kvcache.Stored
	case "BlockRemoved":
		ev.Kind = kvcache.Removed
	case "AllBlocksCleared":
		*ev = kvcache.Event{Kind: kvcache.Cleared}
		return 0, true
	case "":
		return kvcache.DropUndecodable, false
	default:
		return kvcache.DropUnknownEvent, false
	}
	switch {
	case r.wrong || !r.hashed:
		return kvcache.DropUndecodable, false
	case r.remote:
		return kvcache.DropRemoteLocality, false
	case r.badMedium:
		return kvcache.DropUnknownMedium, false
	case ev.Kind == kvcache.Removed:
		return 0, true
	case !r.sized && !deriveBlockSize(ev):
		return kvcache.DropUndecodable, false
	}
	r.keys.apply(ev, b)
	return 0, true
}

// deriveBlockSize fills in the block size of a store that was cut before that field.
func deriveBlockSize(ev *kvcache.Event) bool {
	if len(ev.Hashes) == 0 || len(ev.Tokens) == 0 || ev.Bigram || len(ev.Tokens)%len(ev.Hashes) != 0 {
		return false
	}
	ev.BlockSize = len(ev.Tokens) / len(ev.Hashes)
	return true
}
