package runtrie

// Vacate has a page of areas go, whatever is in it: one call of Compact after the other moves that out. Which one is
// told by any number.
func (t *Trie) Vacate(number int) {
	if len(t.areas.meta) == 0 || t.moved != 0 {
		return
	}
	id := uint32(number % len(t.areas.meta))
	if m := &t.areas.meta[id]; m.live && !m.leaving {
		t.areas.leave(id)
		t.moved = 1
	}
}

// Leaving is how many pages of areas still have to go.
func (t *Trie) Leaving() int { return t.areas.leaving }

// Words is how many words of areas are in use, and how many there are in pages of which any is.
func (t *Trie) Words() (used, all int64) {
	pages := len(t.areas.meta) - len(t.areas.free)
	for _, idle := range t.areas.idle {
		pages -= idle
	}
	return t.areas.used, int64(pages) * pageWords
}
