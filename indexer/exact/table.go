package exact

import (
	"math/bits"
	"math/rand/v2"
	"unsafe"

	"github.com/routerd/routerd/indexer/runtrie"
	"github.com/routerd/routerd/kvcache"
)

const (
	minEntries = 16
	bigTable   = 32 << 10 // entries from which on a table grows by half
	memoryPage = 4 << 10  // bytes; the least that any system has
)

// entry is one number that an engine gave to a block, as the table mixes it. Ref 0 is none.
type entry struct {
	lo, hi uint32
	ref    runtrie.Ref
}

func (e *entry) is(mixed uint64) bool { return e.mixed() == mixed }

func (e *entry) mixed() uint64 { return uint64(e.hi)<<32 | uint64(e.lo) }

// table maps the engine hashes of one worker on one tier to blocks: numbers by open
// addressing with linear probing, which a removal closes up; byte strings apart.
// Numbers are mixed by a product with a secret, which can be undone. The high bits tell
// the home, so that any size will do, and a new table is filled from one end to the other.
type table struct {
	entries []entry
	numbers int
	secret  uint64 // odd
	inverse uint64 // of the secret, modulo 2⁶⁴
	memory  int64  // bytes of the entries
	texts   texts
	extra   runtrie.Sparse[runtrie.Ref, uint32] // how many hashes beyond the first mean a block
}

// mixBy gives an empty table its secret.
func (t *table) mixBy(secret uint64) {
	t.secret, t.inverse = secret, secret // three bits of the inverse are right, and by each step twice as many
	for range 5 {
		t.inverse *= 2 - secret*t.inverse
	}
}

func (t *table) number(e *entry) uint64 { return e.mixed() * t.inverse }

func (t *table) home(mixed uint64) int {
	hi, _ := bits.Mul64(mixed, uint64(len(t.entries)))
	return int(hi)
}

// get returns the block of a hash, or 0, and the place where a search for it begins the
// next time, as long as nothing is removed and no room is made.
func (t *table) get(e kvcache.EngineHash) (at runtrie.Ref, place int) {
	n, ok := e.Number()
	if !ok {
		return t.texts.get(e.Bytes()), 0
	}
	if len(t.entries) == 0 {
		return 0, 0
	}
	mixed := n * t.secret
	for i := t.home(mixed); ; i++ {
		if i == len(t.entries) {
			i = 0
		}
		if s := &t.entries[i]; s.ref == 0 || s.is(mixed) {
			return s.ref, i
		}
	}
}

// touch reads what a search for each number looks at first, so that the memory is there when they are looked up: the
// misses overlap.
func (t *table) touch(hashes []kvcache.EngineHash) (sum uint32) {
	if len(t.entries) < bigTable/8 {
		return 0
	}
	const ahead = 5 // entries to the next cache line, into which most searches go on
	last := len(t.entries) - 1
	for i := range hashes {
		if n, ok := hashes[i].Number(); ok {
			at := t.home(n * t.secret)
			sum += t.entries[at].lo + t.entries[min(at+ahead, last)].lo
		}
	}
	return sum
}

// room makes room for the numbers among some hashes.
func (t *table) room(hashes ...kvcache.EngineHash) {
	size, want := len(t.entries), t.numbers
	if (want+len(hashes))*5 <= size*4 {
		return
	}
	for i := range hashes {
		if _, ok := hashes[i].Number(); ok {
			want++
		}
	}
	if want*5 <= size*4 {
		return
	}
	t.resize(grown(size, want))
}

// shrunk is the size to which a table shrinks that has so many entries, and whether it does: not soon after it grew, and
// not so far that it would soon grow.
func shrunk(size, has int) (to int, less bool) {
	tenths := 3
	if size >= bigTable {
		tenths = 4
	}
	return max(minEntries, has*3/2), size > minEntries && has*10 < size*tenths
}

// grown is the size to which a table grows that shall have so many entries.
func grown(size, want int) int {
	size = max(size, minEntries)
	for want*5 > size*4 {
		if size < bigTable {
			size *= 2
		} else {
			size += size / 2
		}
	}
	return size
}

// put gives a hash another block; get told the place, and there is room.
func (t *table) put(e kvcache.EngineHash, place int, at runtrie.Ref) {
	n, ok := e.Number()
	if !ok {
		t.texts.put(e.Bytes(), at)
		return
	}
	mixed := n * t.secret
	for i := place; ; i++ {
		if i == len(t.entries) {
			i = 0
		}
		s := &t.entries[i]
		if s.ref == 0 {
			*s = entry{uint32(mixed), uint32(mixed >> 32), at}
			t.numbers++
			return
		}
		if s.is(mixed) {
			s.ref = at
			return
		}
	}
}

// take removes a hash and returns its block, or 0.
func (t *table) take(e kvcache.EngineHash) runtrie.Ref {
	at, i := t.get(e)
	if at == 0 {
		return 0
	}
	if _, ok := e.Number(); !ok {
		t.texts.take(e.Bytes())
		return at
	}
	t.close(i)
	t.numbers--
	return at
}

// close moves entries up to fill a place, so that each is found from its home on.
func (t *table) close(hole int) {
	entries := t.entries
	for i := hole; ; {
		if i++; i == len(entries) {
			i = 0
		}
		s := entries[i]
		if s.ref == 0 {
			break
		}
		// It moves if its home is not behind the hole. A processor cannot foresee which do, so this is no branch.
		stays := distance(t.home(s.mixed()), i, len(entries)) - distance(hole, i, len(entries))
		swap := (hole ^ i) &^ (stays >> 63)
		entries[i^swap] = s
		hole ^= swap
	}
	entries[hole] = entry{}
}

// distance is how many places it is from one to another, around the end where need be.
func distance(from, to, size int) int {
	d := to - from
	return d + size&(d>>63)
}

// shrink gives memory back after many hashes went.
func (t *table) shrink() {
	if size, less := shrunk(len(t.entries), t.numbers); less {
		t.resize(size)
	}
}

func (t *table) resize(size int) {
	if t.secret == 0 {
		t.mixBy(rand.Uint64() | 1)
	}
	was := t.entries
	t.entries, t.memory = newEntries(size), entryBytes(size)
	if size < len(was) {
		t.crowd(was)
	} else {
		t.spread(was)
	}
}

// spread fills a table that is new and larger with its entries.
func (t *table) spread(was []entry) {
	size := len(t.entries)
	for i := range was {
		if was[i].ref == 0 {
			continue
		}
		at := t.home(was[i].mixed()) // rises with i, but for those that went around the end
		for t.entries[at].ref != 0 {
			if at++; at == size {
				at = 0
			}
		}
		t.entries[at] = was[i]
	}
}

// crowd fills a table that is new and smaller. Where most places were free and half are taken, as it then is, a processor
// foresees neither which: both are told by bits.
func (t *table) crowd(was []entry) {
	free := newPlaces(len(t.entries))
	for len(was) > 0 {
		part := was[:min(len(was), 64)]
		was = was[len(part):]
		for there := taken(part); there != 0; there &= there - 1 {
			e := &part[bits.TrailingZeros64(there)]
			t.entries[free.take(t.home(e.mixed()))] = *e
		}
	}
}

// taken has a bit for each of up to 64 places that is taken.
func taken(entries []entry) (there uint64) {
	for i := range entries {
		n := uint64(0)
		if entries[i].ref != 0 {
			n = 1
		}
		there |= n << i
	}
	return there
}

// places has a bit for each place of a table that is free.
type places []uint64

func newPlaces(n int) places {
	p := make(places, n/64+1)
	for i := range p {
		p[i] = ^uint64(0)
	}
	p[n/64] = 1<<(n%64) - 1
	return p
}

// take takes the first free place from at on, around the end where need be. There is one.
func (p places) take(at int) int {
	w := at / 64
	free := p[w] >> (at % 64) << (at % 64)
	for free == 0 {
		if w++; w == len(p) {
			w = 0
		}
		free = p[w]
	}
	p[w] &^= free & -free
	return w*64 + bits.TrailingZeros64(free)
}

// newEntries makes entries that have been written to. Fresh memory that is read before it is written to is mapped
// twice, the second time with a word to all cores that run the process: two workers that grow then hold each other up.
func newEntries(size int) []entry {
	entries := make([]entry, size)
	for i := 0; i < size; i += memoryPage / int(unsafe.Sizeof(entry{})) {
		entries[i] = entry{}
	}
	return entries
}

func (t *table) size() int { return t.numbers + t.texts.n }

func (t *table) each(f func(kvcache.EngineHash, runtrie.Ref)) {
	for i := range t.entries {
		if s := &t.entries[i]; s.ref != 0 {
			f(kvcache.NumberHash(t.number(s)), s.ref)
		}
	}
	t.texts.each(func(s []byte, at runtrie.Ref) {
		if e, ok := kvcache.BytesHash(s); ok {
			f(e, at)
		}
	})
}
