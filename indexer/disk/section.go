package disk

import (
	"fmt"
	"iter"
	"math"
	"slices"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/indexer"
	"github.com/routerd/routerd/internal/cursor"
	"github.com/routerd/routerd/kvcache"
)

// Stream is what a section says.
type Stream struct {
	Position []byte
	// Ranks are what the stream stored. Their changes may be repeated any number of times.
	Ranks []indexer.Snapshot
}

// Read reads a section. An error means that nothing of it can be believed.
func (f *File) Read(e *Entry) (Stream, error) {
	section, err := f.Section(e)
	if err != nil {
		return Stream{}, err
	}
	s, err := parse(e, section)
	if err != nil {
		return Stream{}, fmt.Errorf("read index of worker %s: %w", e.Worker, err)
	}
	return s, nil
}

// minRank is how many bytes a rank has at least.
const minRank = 8

// parse reads a section whole once, so that its changes cannot fail later.
func parse(e *Entry, section []byte) (Stream, error) {
	c := cursor.New(section)
	s := Stream{Position: c.Bytes(c.AtMost(len(section)))}
	seen, blocks := map[uint32]bool{}, 0
	for range c.Count(minRank) {
		w := fleet.Worker{ID: e.Worker.ID, Rank: uint32(c.AtMost(math.MaxUint32))}
		if seen[w.Rank] {
			c.Fail("rank %d is there twice", w.Rank)
		}
		seen[w.Rank] = true
		rest := readRest(c)
		begin := c.Rest()
		for change := range changes(c) {
			blocks += len(change.Blocks) - len(change.Removed)
		}
		told := begin[:len(begin)-len(c.Rest())]
		s.Ranks = append(s.Ranks, indexer.Snapshot{Worker: w, Rest: rest, Changes: func(yield func(indexer.Change) bool) {
			changes(cursor.New(told))(yield)
		}})
	}
	if c.Err() == nil && blocks != e.Blocks {
		c.Fail("it has %d blocks, the directory says %d", blocks, e.Blocks)
	}
	return s, c.End()
}

func readRest(c *cursor.Cursor) (r indexer.Rest) {
	flags := c.Byte()
	if flags > restMain|restFull|restEvicted {
		c.Fail("the flags of a rank are %#x", flags)
	}
	r.MainKnown, r.Full, r.Evicted = flags&restMain != 0, flags&restFull != 0, flags&restEvicted != 0
	if r.MainKnown {
		r.Main = readGroup(c)
	}
	for range c.Count(1) {
		r.Others = append(r.Others, readGroup(c))
	}
	for t := range r.Opaque {
		for range c.Count(2) {
			r.Opaque[t] = append(r.Opaque[t], readHash(c))
		}
	}
	return r
}

func readGroup(c *cursor.Cursor) int32 {
	g := c.Signed()
	if g != int64(int32(g)) {
		c.Fail("%d is no cache group", g)
	}
	return int32(g)
}

func readHash(c *cursor.Cursor) kvcache.EngineHash {
	n := c.AtMost(kvcache.MaxEngineHashBytes)
	if n == 0 {
		return kvcache.NumberHash(c.Uint64())
	}
	h, _ := kvcache.BytesHash(c.Bytes(n))
	return h
}

// readListed reads a hash of a list.
func readListed(c *cursor.Cursor, numbers bool) kvcache.EngineHash {
	if numbers {
		return kvcache.NumberHash(c.Uint64())
	}
	return readHash(c)
}

// changes reads changes up to their end.
func changes(c *cursor.Cursor) iter.Seq[indexer.Change] {
	return func(yield func(indexer.Change) bool) {
		var change indexer.Change
		for {
			head := c.Byte()
			if head == kindEnd || !readChange(c, head, &change) || !yield(change) {
				return
			}
		}
	}
}

// readChange reads a change behind its head into change, whose slices are used again. It
// reports false for one that is none.
func readChange(c *cursor.Cursor, head byte, change *indexer.Change) bool {
	numbers := head&headNumbers != 0
	size := 2 // of a hash, at least
	if numbers {
		size = 8
	}
	*change = indexer.Change{Tier: kvcache.Tier(head >> tierShift), Removed: change.Removed[:0], Blocks: change.Blocks[:0]}
	if head>>tierShift >= kvcache.Tiers {
		c.Fail("a change is on tier %d", head>>tierShift)
	}
	switch head & kinds {
	case kindStored:
		readParent(c, head, change)
		n := c.Count(size + 8)
		change.Blocks = slices.Grow(change.Blocks, n)
		for range n {
			change.Blocks = append(change.Blocks, indexer.Block{Hash: readListed(c, numbers), Local: kvcache.BlockHash(c.Uint64())})
		}
	case kindRemoved:
		if head&(headParent|headSalt) != 0 {
			c.Fail("the head of a removal is %#x", head)
		}
		n := c.Count(size)
		change.Removed = slices.Grow(change.Removed, n)
		for range n {
			change.Removed = append(change.Removed, readListed(c, numbers))
		}
	default:
		c.Fail("the head of a change is %#x", head)
	}
	if c.Err() == nil && len(change.Blocks)+len(change.Removed) == 0 {
		c.Fail("a change is empty")
	}
	return c.Err() == nil
}

// readParent reads what a stored chain goes on from.
func readParent(c *cursor.Cursor, head byte, change *indexer.Change) {
	switch head & (headParent | headSalt) {
	case headParent:
		change.HasParent, change.Parent = true, readHash(c)
	case headSalt:
		change.Salt = c.Uint64()
	case headParent | headSalt:
		c.Fail("a chain has a parent and a salt")
	}
}
