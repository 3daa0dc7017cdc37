//go:build !indexcheck && !race

// The race detector has objects of its own in the heap.

package exact_test

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"testing"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/indexer/exact"
	"github.com/routerd/routerd/kvcache"
)

// shape is how an index is filled.
type shape struct {
	workers, blocks, depth int
	event                  int // blocks of an event
	families               int // prompts share their first half by family; 0 for nothing shared
	text                   bool
	salted                 bool
	tiers                  int
	keep                   int // of each so many prompts one stays; 0 for all
	scatter                bool
}

// prompts tells the events of one worker, prompt by prompt: those that make it and those that take its own half out.
func (s *shape) prompts(w int, tell func(made, gone []kvcache.Event)) {
	name := func(n uint64) kvcache.EngineHash {
		n = n*0x9e3779b97f4a7c15 + uint64(w)
		if !s.text {
			return kvcache.NumberHash(n)
		}
		var b [32]byte
		binary.LittleEndian.PutUint64(b[8:], n)
		h, _ := kvcache.BytesHash(b[:])
		return h
	}
	number := uint64(w) << 32
	for p := range s.blocks / s.depth {
		var made, gone []kvcache.Event
		shared := 0
		if s.families > 0 {
			shared = s.depth / 2
		}
		var last kvcache.EngineHash
		for from := 0; from < s.depth; from += s.event {
			e := kvcache.Event{Kind: kvcache.Stored, BlockSize: size, Parent: last, HasParent: from > 0}
			if s.salted && from == 0 {
				e.Salt = fmt.Sprint("salt ", w, p)
			}
			for i := from; i < from+s.event; i++ {
				number++
				first := uint32(number) | uint32(w)<<24
				if i < shared {
					first = 1<<31 | uint32(p%s.families)<<16 | uint32(i)
				}
				e.Hashes = append(e.Hashes, name(number))
				for range size {
					e.Tokens = append(e.Tokens, first)
				}
			}
			last = e.Hashes[len(e.Hashes)-1]
			made = append(made, e)
			if s.tiers > 0 {
				made = append(made, kvcache.Event{Kind: kvcache.Stored, Hashes: e.Hashes, Tier: kvcache.Tier(p % s.tiers)})
			}
			if from >= shared && !(s.scatter && from/s.event%3 == 0) {
				gone = append(gone, kvcache.Event{Kind: kvcache.Removed, Hashes: e.Hashes})
			}
		}
		if s.keep == 0 || p%s.keep == 0 {
			gone = nil
		}
		tell(made, gone)
	}
}

// fill makes everything, then takes out what shall go.
func (s *shape) fill(x *exact.Index) {
	gone := make([][]kvcache.Event, s.workers)
	for w := range s.workers {
		s.prompts(w, func(made, later []kvcache.Event) {
			x.Apply(fleet.Worker{ID: fleet.WorkerID(w)}, made)
			gone[w] = append(gone[w], later...)
		})
	}
	for w, events := range gone {
		x.Apply(fleet.Worker{ID: fleet.WorkerID(w)}, events)
	}
}

var shapes = map[string]shape{
	"few workers, depth 64":     {workers: 4, blocks: 60_000, depth: 64, event: 16, families: 64},
	"many workers, depth 64":    {workers: 200, blocks: 2000, depth: 64, event: 16, families: 16},
	"many workers, depth 512":   {workers: 100, blocks: 4096, depth: 512, event: 16, families: 8},
	"few workers, depth 4096":   {workers: 16, blocks: 4096 * 5, depth: 4096, event: 256, families: 4},
	"one block an event":        {workers: 16, blocks: 10_000, depth: 50, event: 1, families: 20},
	"short prompts":             {workers: 8, blocks: 20_000, depth: 4, event: 4},
	"salted prompts":            {workers: 8, blocks: 20_000, depth: 8, event: 8, salted: true},
	"byte strings":              {workers: 8, blocks: 30_000, depth: 512, event: 16, families: 8, text: true},
	"four tiers":                {workers: 20, blocks: 10_000, depth: 100, event: 10, families: 8, tiers: kvcache.Tiers},
	"one of four suffixes":      {workers: 64, blocks: 6000, depth: 60, event: 10, families: 30, keep: 4},
	"one of four, long":         {workers: 16, blocks: 4096 * 8, depth: 4096, event: 256, families: 4, keep: 4},
	"one of ten, without holes": {workers: 8, blocks: 40_000, depth: 40, event: 10, keep: 10},
	"holes":                     {workers: 8, blocks: 40_000, depth: 100, event: 4, families: 3, keep: 1000, scatter: true},
}

func TestAnIndexTellsItsMemory(t *testing.T) {
	for name, s := range shapes {
		t.Run(name, func(t *testing.T) {
			before := int64(liveHeap())
			x := exact.New(size)
			s.fill(x)
			heap, told := int64(liveHeap())-before, x.Bytes()
			t.Logf("%d bytes told, %d in use: %+.1f %%", told, heap, 100*float64(told-heap)/float64(heap))
			if told < heap*95/100 || told > heap*105/100 {
				t.Errorf("%d bytes told, %d in use", told, heap)
			}
			for w := range s.workers {
				x.Remove(fleet.Worker{ID: fleet.WorkerID(w)})
			}
			if heap, told = int64(liveHeap())-before, x.Bytes(); told > heap+heap/20+4096 || told < heap-heap/20-4096 || told > 160<<10 {
				t.Errorf("%d bytes told after all went, %d in use", told, heap)
			}
			runtime.KeepAlive(x)
		})
	}
}

// After three of four suffixes went, what stays takes little more than if nothing else had ever been.
func TestWhatStaysAfterMostWentIsDense(t *testing.T) {
	for name, c := range map[string]struct {
		shape
		most float64 // of what a block took before
	}{
		"depth 64":  {shape{workers: 32, blocks: 64 * 300, depth: 64, event: 16, families: 64, keep: 4}, 1.05},
		"depth 512": {shape{workers: 32, blocks: 512 * 40, depth: 512, event: 16, families: 16, keep: 4}, 1.05},
		// A table of hashes shrinks when less than two fifths of it are used; these were cut to just above.
		"depth 4096": {shape{workers: 16, blocks: 4096 * 12, depth: 4096, event: 16, families: 4, keep: 4}, 1.45},
	} {
		t.Run(name, func(t *testing.T) {
			s := c.shape
			per := func(s shape) float64 {
				x, blocks := exact.New(size), 0
				s.fill(x)
				for w := range s.workers {
					blocks += x.Blocks(fleet.Worker{ID: fleet.WorkerID(w)})[kvcache.Device]
				}
				return float64(x.Bytes()) / float64(blocks)
			}
			thin := per(s)
			s.keep = 0
			full := per(s)
			t.Logf("%.1f bytes a block when full, %.1f for those that stay", full, thin)
			if thin > full*c.most {
				t.Errorf("%.1f bytes a block when full, %.1f for those that stay", full, thin)
			}
		})
	}
}
