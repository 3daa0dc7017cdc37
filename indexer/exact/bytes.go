package exact

import (
	"unsafe"

	"github.com/routerd/routerd/indexer/runtrie"
	"github.com/routerd/routerd/kvcache"
)

const (
	// workerBytes is about what a worker's place in the list of all has beside its holder.
	workerBytes = 32
	// maxScratch bounds the blocks for which a worker's scratch is kept.
	maxScratch = 4096
)

// Bytes is the memory of the index, in bytes of the heap, without what finds under way use.
func (x *Index) Bytes() int64 {
	x.trie.Lock()
	defer x.trie.Unlock()
	return x.trie.Bytes() + x.tables.Load()
}

// settle takes over how much memory h, whose lock is held, has now.
func (x *Index) settle(h *holder) {
	if cap(h.olds) > maxScratch || cap(h.free) > maxScratch || cap(h.seen) > 8*maxScratch {
		h.scratch = scratch{}
	}
	now := int64(0)
	if !h.gone {
		now = h.measure()
	}
	if now != h.bytes {
		x.tables.Add(now - h.bytes)
		h.bytes = now
	}
}

// measure is the memory of h.
func (h *holder) measure() int64 {
	total := runtrie.HeapBytes(int(unsafe.Sizeof(*h))) + workerBytes + int64(40*len(h.others))
	for t := range h.tiers {
		if tier := &h.tiers[t]; tier.own != nil {
			total += tier.bytes()
		}
	}
	return total + h.opaque.bytes() + h.scratch.bytes()
}

func (t *table) bytes() int64 {
	total := t.memory + t.extra.Bytes()
	for _, texts := range t.texts.tables {
		total += texts.bytes()
	}
	return total
}

func entryBytes(n int) int64 { return runtrie.HeapBytes(n * int(unsafe.Sizeof(entry{}))) }

func (t *textTable) bytes() int64 {
	const header = int64(unsafe.Sizeof(textTable{}) + unsafe.Sizeof(t))
	pages := int64(len(t.pages)) * runtrie.HeapBytes(textsPage*t.stride())
	return header + pages + int64(cap(t.pages))*int64(unsafe.Sizeof(t.pages[0])) + runtrie.HeapBytes(len(t.slots)*int(unsafe.Sizeof(textSlot{})))
}

func (s *scratch) bytes() int64 {
	return int64(cap(s.hashes))*int64(unsafe.Sizeof(kvcache.BlockHash(0))) +
		int64(cap(s.names))*int64(unsafe.Sizeof(kvcache.EngineHash{})) +
		int64(cap(s.olds))*int64(unsafe.Sizeof(slot{})) +
		int64(cap(s.path)+cap(s.free))*int64(unsafe.Sizeof(runtrie.Stretch{})) +
		int64(cap(s.had))*int64(unsafe.Sizeof(runtrie.Mask{})) +
		int64(4*cap(s.seen))
}
