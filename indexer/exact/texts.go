package exact

import (
	"encoding/binary"
	"hash/maphash"
	"slices"

	"github.com/routerd/routerd/indexer/runtrie"
)

const (
	refBytes  = 4
	textsPage = 64 // byte strings in a page
)

// texts maps byte strings that an engine gave to blocks. Engines use one length, so that there is a table for each
// that was met.
type texts struct {
	tables []*textTable
	n      int // byte strings in all
}

// textTable maps byte strings of one length. They stand densely in pages, each before its block; a slot by open
// addressing with linear probing has a string's number and, to tell it from most others, a part of its hash, by which
// the slot's home is known too.
type textTable struct {
	length int
	seed   maphash.Seed
	n      int
	slots  []textSlot
	pages  [][]byte
}

type textSlot struct {
	tag    uint32
	number uint32 // plus 1; 0 for none
}

func (t *texts) table(length int) *textTable {
	for _, table := range t.tables {
		if table.length == length {
			return table
		}
	}
	return nil
}

// get returns the block of a byte string, or 0.
func (t *texts) get(s string) runtrie.Ref {
	if table := t.table(len(s)); table != nil {
		if i, ok := table.find(s); ok {
			return table.ref(table.slots[i].number - 1)
		}
	}
	return 0
}

// put gives a byte string a block.
func (t *texts) put(s string, at runtrie.Ref) {
	table := t.table(len(s))
	if table == nil {
		table = &textTable{length: len(s), seed: maphash.MakeSeed()}
		t.tables = append(t.tables, table)
	}
	before := table.n
	table.put(s, at)
	t.n += table.n - before
}

// take removes a byte string that is there.
func (t *texts) take(s string) {
	table := t.table(len(s))
	table.take(s)
	t.n--
	if table.n == 0 {
		t.tables = slices.DeleteFunc(t.tables, func(other *textTable) bool { return other == table })
	}
}

// each tells all byte strings. They belong to the table.
func (t *texts) each(f func(s []byte, at runtrie.Ref)) {
	for _, table := range t.tables {
		for n := range uint32(table.n) {
			f(table.text(n), table.ref(n))
		}
	}
}

func (t *textTable) stride() int { return t.length + refBytes }

// cell is a string's place in a page, with its block.
func (t *textTable) cell(n uint32) []byte {
	from := int(n%textsPage) * t.stride()
	return t.pages[n/textsPage][from : from+t.stride()]
}

func (t *textTable) text(n uint32) []byte { return t.cell(n)[:t.length] }

func (t *textTable) ref(n uint32) runtrie.Ref {
	return runtrie.Ref(binary.LittleEndian.Uint32(t.cell(n)[t.length:]))
}

func (t *textTable) home(tag uint32) int { return int(uint64(tag) * uint64(len(t.slots)) >> 32) }

// find returns the slot of a string, or the empty one where a search for it ends.
func (t *textTable) find(s string) (slot int, ok bool) {
	if len(t.slots) == 0 {
		return 0, false
	}
	tag := uint32(maphash.String(t.seed, s) >> 32)
	for i := t.home(tag); ; i++ {
		if i == len(t.slots) {
			i = 0
		}
		at := t.slots[i]
		if at.number == 0 {
			return i, false
		}
		if at.tag == tag && string(t.text(at.number-1)) == s {
			return i, true
		}
	}
}

func (t *textTable) put(s string, at runtrie.Ref) {
	if (t.n+1)*5 > len(t.slots)*4 {
		t.resize(grown(len(t.slots), t.n+1))
	}
	i, ok := t.find(s)
	if !ok {
		if t.n/textsPage == len(t.pages) {
			t.pages = append(t.pages, make([]byte, textsPage*t.stride()))
		}
		t.n++
		t.slots[i] = textSlot{uint32(maphash.String(t.seed, s) >> 32), uint32(t.n)}
		copy(t.text(uint32(t.n-1)), s)
	}
	binary.LittleEndian.PutUint32(t.cell(t.slots[i].number - 1)[t.length:], uint32(at))
}

// take removes a string that is there. The last one takes its place in the pages.
func (t *textTable) take(s string) {
	i, _ := t.find(s)
	hole, last := t.slots[i].number-1, uint32(t.n-1)
	if hole != last {
		j, _ := t.find(string(t.text(last)))
		t.slots[j].number = hole + 1
		copy(t.cell(hole), t.cell(last))
	}
	t.close(i)
	t.n--
	if spare := len(t.pages) - (t.n+textsPage-1)/textsPage; spare > 1 {
		clear(t.pages[len(t.pages)-spare+1:])
		t.pages = t.pages[:len(t.pages)-spare+1]
	}
	if size, less := shrunk(len(t.slots), t.n); less {
		t.resize(size)
		t.pages = slices.Clone(t.pages)
	}
}

// close moves slots up to fill a place, so that each is found from its home on.
func (t *textTable) close(hole int) {
	for i := hole; ; {
		if i++; i == len(t.slots) {
			i = 0
		}
		s := t.slots[i]
		if s.number == 0 {
			break
		}
		home := t.home(s.tag)
		if between := hole < home && home <= i || i < hole && (hole < home || home <= i); !between {
			t.slots[hole], hole = s, i
		}
	}
	t.slots[hole] = textSlot{}
}

func (t *textTable) resize(size int) {
	was := t.slots
	t.slots = make([]textSlot, size)
	for _, s := range was {
		if s.number == 0 {
			continue
		}
		i := t.home(s.tag)
		for t.slots[i].number != 0 {
			if i++; i == size {
				i = 0
			}
		}
		t.slots[i] = s
	}
}
