package runtrie_test

import (
	"testing"

	"github.com/routerd/routerd/indexer/runtrie"
	"github.com/routerd/routerd/kvcache"
)

// look does all steps of a search.
func look(t *runtrie.Trie, want int64) *runtrie.Cold {
	c := t.Cold(want)
	for c.Step() {
	}
	return c
}

// find asks for a prompt.
func (s *stage) find(p *player, blocks []kvcache.BlockHash) {
	q := runtrie.NewQuery()
	q.Ask(p.Slot())
	s.trie.Pin(q)
	s.trie.Find(q, blocks)
	s.trie.Unpin(q)
}

// pass has so much time go by that ages differ.
func (s *stage) pass() {
	for range 8 {
		s.trie.Tick()
	}
}

// Of prompts of all ages the oldest are taken, by when they were stored or asked for, and of each its end first.
func TestWhatWasNotUsedForLongestIsColdFirst(t *testing.T) {
	s := newStage(t)
	p := s.join()
	const n = 60
	length := 3 * runtrie.Run
	var refs [n][]runtrie.Ref
	for i := range n {
		refs[i] = s.hold(p, run(1+i, length))
		s.pass()
	}
	for i := range n / 3 {
		s.find(p, run(1+i, length)) // the oldest are the youngest now
		s.pass()
	}
	var taken [n]int
	c := look(s.trie, 23*int64(length)*n/10*3) // about 23 bytes a block, three tenths of them
	for i := range n {
		for k, ref := range refs[i] {
			if id, _ := ref.Node(); c.Has(id) {
				taken[i]++
			} else if taken[i] > 0 {
				t.Fatalf("prompt %d: block %d stays and one before it goes", i, k)
			}
		}
	}
	for i := range n {
		switch order := (i + n - n/3) % n; { // by age
		case order == 0 && taken[i] != length:
			t.Errorf("of the oldest prompt %d blocks of %d go", taken[i], length)
		case order > n/2 && taken[i] > 0:
			t.Errorf("prompt %d, number %d by age, loses %d blocks", i, order, taken[i])
		}
	}
	if c.Everything() {
		t.Error("all was taken")
	}
}

// A path that goes on while a search for cold nodes is under way is cold no more, as far as it reaches up.
func TestWhatGoesOnIsColdNoMore(t *testing.T) {
	s := newStage(t)
	p := s.join()
	prompt := run(1, 5*runtrie.Run)
	refs := s.hold(p, prompt)
	s.pass()
	c := look(s.trie, 1<<40)
	if !c.Everything() {
		t.Error("there is less than was wanted, and it was not told")
	}
	for _, ref := range refs {
		if id, _ := ref.Node(); !c.Has(id) || !c.Still(id) {
			t.Fatal("not all was taken")
		}
	}
	s.trie.Lock()
	defer s.trie.Unlock()
	path, err := s.trie.Grow(nil, refs[len(refs)-1], 0, run(2, 1))
	if err != nil {
		t.Fatal(err)
	}
	s.trie.Hold(path[0].Node, p.Holder, runtrie.Positions(0, 1))
	for _, ref := range refs {
		if id, _ := ref.Node(); c.Still(id) {
			t.Fatal("what is above something new is cold")
		}
	}
}
