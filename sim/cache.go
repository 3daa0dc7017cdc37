package sim

import (
	"cmp"
	"container/list"
	"encoding/binary"
	"slices"
	"strings"
)

const tokenBytes = 4

// sequence is a token path: the adapter's name, a zero byte, and every token
// as 4 little-endian bytes, in one string, so that the keys of all its blocks
// are slices of it and share its memory.
type sequence struct {
	adapter string
	path    string
}

func newSequence(adapter string, runs ...[]uint32) sequence {
	size := len(adapter) + 1
	for _, tokens := range runs {
		size += tokenBytes * len(tokens)
	}
	path := make([]byte, 0, size)
	path = append(path, adapter...)
	path = append(path, 0)
	for _, tokens := range runs {
		for _, t := range tokens {
			path = binary.LittleEndian.AppendUint32(path, t)
		}
	}
	return sequence{adapter: adapter, path: string(path)}
}

// prefix is the key of the path up to and with token n-1.
func (s sequence) prefix(n int) string {
	return s.path[:len(s.adapter)+1+tokenBytes*n]
}

// tokens are the bytes of tokens from (included) to until (excluded).
func (s sequence) tokens(from, until int) string {
	start := len(s.adapter) + 1
	return s.path[start+tokenBytes*from : start+tokenBytes*until]
}

// block is one cached block. It stands in the idle list exactly while nobody
// holds it.
type block struct {
	path    string
	digest  digest
	holders int
	idle    *list.Element
}

// cache is the block cache of one rank: a plain map from token path to block,
// with a list of the blocks that may be evicted, oldest first. It is owned by
// its rank and used under the rank's lock.
type cache struct {
	blockSize int
	capacity  int
	root      digest
	blocks    map[string]*block
	idle      *list.List
	epoch     uint64 // rises with clear, so that older chains know they are void
}

// chain is what one running answer holds of the cache: the blocks of its
// sequence from the first one on.
type chain struct {
	sequence sequence
	held     []*block
	epoch    uint64
	full     bool // no room was left once: nothing after it may be cached
}

func newCache(blockSize, capacity int, root digest) *cache {
	return &cache{
		blockSize: blockSize,
		capacity:  capacity,
		root:      root,
		blocks:    make(map[string]*block),
		idle:      list.New(),
	}
}

// open holds the longest cached beginning of the sequence, at most limit blocks.
func (c *cache) open(s sequence, limit int) *chain {
	ch := &chain{sequence: s, epoch: c.epoch}
	for i := range limit {
		b, ok := c.blocks[s.prefix((i+1)*c.blockSize)]
		if !ok {
			break
		}
		c.hold(ch, b)
	}
	return ch
}

// fill caches the blocks of a chain that are full once its first computed
// tokens are there, and returns what changed, in order of effect.
func (c *cache) fill(ch *chain, computed int) []event {
	if ch.epoch != c.epoch || ch.full {
		return nil
	}
	var removed, stored []event
	fresh := false // the last stored event ends with the block before this one
	for i := len(ch.held); (i+1)*c.blockSize <= computed; i++ {
		b, ok := c.blocks[ch.sequence.prefix((i+1)*c.blockSize)]
		if ok {
			c.hold(ch, b)
			fresh = false
			continue
		}
		if !c.makeRoom(&removed) {
			ch.full = true
			break
		}
		if !fresh {
			stored = append(stored, c.startStore(ch, i))
		}
		fresh = true
		c.store(ch, i, &stored[len(stored)-1])
	}
	return append(removed, stored...)
}

// startStore makes the event for a run of new blocks that begins at block i.
func (c *cache) startStore(ch *chain, i int) event {
	e := event{kind: blockStored, adapter: ch.sequence.adapter}
	if i > 0 {
		parent := ch.held[i-1].digest
		e.parent = &parent
	}
	return e
}

// store adds block i of the chain to the cache and to the event.
func (c *cache) store(ch *chain, i int, e *event) {
	parent := c.root
	if i > 0 {
		parent = ch.held[i-1].digest
	}
	tokens := ch.sequence.tokens(i*c.blockSize, (i+1)*c.blockSize)
	b := &block{
		path:   ch.sequence.prefix((i + 1) * c.blockSize),
		digest: parent.child(tokens, ch.sequence.adapter),
	}
	c.blocks[b.path] = b
	c.hold(ch, b)
	e.hashes = append(e.hashes, b.digest)
	e.tokens = ch.sequence.tokens((i+1-len(e.hashes))*c.blockSize, (i+1)*c.blockSize)
}

func (c *cache) hold(ch *chain, b *block) {
	if b.idle != nil {
		c.idle.Remove(b.idle)
		b.idle = nil
	}
	b.holders++
	ch.held = append(ch.held, b)
}

// makeRoom evicts one block if the cache is full; false when all are held.
func (c *cache) makeRoom(removed *[]event) bool {
	if len(c.blocks) < c.capacity {
		return true
	}
	oldest := c.idle.Front()
	if oldest == nil {
		return false
	}
	b, ok := c.idle.Remove(oldest).(*block)
	if !ok {
		return false
	}
	delete(c.blocks, b.path)
	*removed = append(*removed, event{kind: blockRemoved, hashes: []digest{b.digest}})
	return true
}

// release lets go of a chain's blocks, the last one first, so that eviction
// takes tails before heads. The chain must not be used again.
func (c *cache) release(ch *chain) {
	if ch.epoch != c.epoch {
		return
	}
	for _, b := range slices.Backward(ch.held) {
		b.holders--
		if b.holders == 0 {
			b.idle = c.idle.PushBack(b)
		}
	}
	ch.held = nil
}

// clear forgets every block, held or not.
func (c *cache) clear() {
	c.epoch++
	clear(c.blocks)
	c.idle.Init()
}

// usage is the share of blocks that running requests hold, 0 to 1.
func (c *cache) usage() float64 {
	return float64(len(c.blocks)-c.idle.Len()) / float64(c.capacity)
}

// hashes lists the hashes of all cached blocks, sorted as numbers; byte strings
// are of one length, so that the same order sorts them by their bytes.
func (c *cache) hashes(form HashForm) []string {
	list := make([]string, 0, len(c.blocks))
	for _, b := range c.blocks {
		list = append(list, b.digest.text(form))
	}
	slices.SortFunc(list, func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b)) })
	return list
}
