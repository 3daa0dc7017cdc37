package runtrie_test

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/routerd/routerd/indexer/runtrie"
	"github.com/routerd/routerd/kvcache"
)

// stage is a trie that one writer changes while several read.
type stage struct {
	t    *testing.T
	trie *runtrie.Trie
	rnd  *rand.Rand
}

func newStage(t *testing.T) *stage {
	t.Helper()
	return &stage{t, runtrie.New(runtrie.MaxNodes), rand.New(rand.NewPCG(7, 7))}
}

// player is a holder of prompts, one behind the other in one or more paths.
type player struct {
	*runtrie.Holder
	at []runtrie.Ref // of the path that it has
}

func (s *stage) join() *player {
	s.t.Helper()
	s.trie.Lock()
	defer s.trie.Unlock()
	h, err := s.trie.Join()
	if err != nil {
		s.t.Fatal(err)
	}
	return &player{Holder: h}
}

// hold gives the player a prompt, from its beginning on.
func (s *stage) hold(p *player, blocks []kvcache.BlockHash) (refs []runtrie.Ref) {
	s.t.Helper()
	s.trie.Lock()
	defer s.trie.Unlock()
	path, err := s.trie.Grow(nil, 0, 0, blocks)
	if err != nil {
		s.t.Error(err)
	}
	for _, st := range path {
		s.trie.Hold(st.Node, p.Holder, runtrie.Positions(st.From, st.To))
		for pos := st.From; pos < st.To; pos++ {
			refs = append(refs, runtrie.RefOf(st.Node, pos))
		}
	}
	return refs
}

// drop takes blocks from the player, the last one first. Runs that stay go elsewhere now and then.
func (s *stage) drop(p *player, refs []runtrie.Ref) {
	s.trie.Lock()
	s.trie.Vacate(s.rnd.Int())
	s.trie.Compact(8)
	s.trie.Unlock()
	s.release(p, refs)
}

// release is drop with all runs staying where they are.
func (s *stage) release(p *player, refs []runtrie.Ref) {
	s.trie.Lock()
	defer s.trie.Unlock()
	for i := len(refs) - 1; i >= 0; i-- {
		id, pos := refs[i].Node()
		s.trie.Drop(id, p.Holder, runtrie.Positions(pos, pos+1))
	}
}

// bound is what a player must be found with, at least and at most.
type bound struct {
	who         *player
	least, most uint32
}

// read has readers look for prompts until write is done.
func (s *stage) read(write func(), prompts [][]kvcache.BlockHash, bounds [][]bound) {
	s.t.Helper()
	var done atomic.Bool
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			q := runtrie.NewQuery()
			for i := 0; !done.Load(); i = (i + 1) % len(prompts) {
				s.trie.Pin(q)
				q.Reset()
				for _, b := range bounds[i] {
					q.Ask(b.who.Slot())
				}
				s.trie.Find(q, prompts[i])
				s.trie.Unpin(q)
				for _, b := range bounds[i] {
					if got := q.Length(b.who.Slot()); got < b.least || got > b.most {
						s.t.Errorf("prompt %d: slot %d was found with %d blocks, which always has %d to %d", i, b.who.Slot(), got, b.least, b.most)
						done.Store(true)
					}
				}
			}
		})
	}
	write()
	done.Store(true)
	wg.Wait()
}

// run returns n blocks, of which the first is begin.
func run(begin, n int) []kvcache.BlockHash {
	blocks := make([]kvcache.BlockHash, n)
	for i := range blocks {
		blocks[i] = kvcache.BlockHash(1000*begin + i)
	}
	return blocks
}

func join(parts ...[]kvcache.BlockHash) (all []kvcache.BlockHash) {
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}

// Whoever holds a prompt all the time is found with exactly that, whatever comes and
// goes beside it: branches, others on the same path, and crowds of them.
func TestWhatStaysIsFoundExactly(t *testing.T) {
	s := newStage(t)
	common, tail := run(1, 13), run(2, 20)
	steady, short := s.join(), s.join()
	s.hold(steady, join(common, tail))
	s.hold(short, common)
	var others []*player
	for range 12 {
		others = append(others, s.join())
	}
	prompts := [][]kvcache.BlockHash{join(common, tail), join(common, tail[:7], run(3, 9)), join(common, run(4, 20)), common[:5]}
	var bounds [][]bound
	for _, most := range []uint32{33, 20, 13, 5} {
		of := []bound{{steady, most, most}, {short, min(most, 13), min(most, 13)}}
		for _, o := range others {
			of = append(of, bound{o, 0, 33})
		}
		bounds = append(bounds, of)
	}
	s.read(func() {
		for range rounds {
			o := others[s.rnd.IntN(len(others))]
			p := prompts[s.rnd.IntN(len(prompts))]
			p = p[:1+s.rnd.IntN(len(p))]
			if len(o.at) > 0 {
				s.drop(o, o.at)
			}
			o.at = s.hold(o, p)
		}
	}, prompts, bounds)
}

// Whoever has more or less, but never less than so much, is never found with less.
func TestNobodyFallsBelowWhatItAlwaysHas(t *testing.T) {
	for _, n := range []int{1, 3, 12} { // alone, few, a crowd
		s := newStage(t)
		prompt := run(1, 11)
		var all []*player
		var bounds []bound
		floors := map[*player]int{}
		for i := range n {
			p := s.join()
			p.at, floors[p] = s.hold(p, prompt), i%len(prompt)
			all = append(all, p)
			bounds = append(bounds, bound{p, uint32(i % len(prompt)), 11})
		}
		prompts, each := [][]kvcache.BlockHash{prompt}, [][]bound{bounds}
		for _, b := range bounds { // and each alone
			prompts, each = append(prompts, prompt), append(each, []bound{b})
		}
		s.read(func() {
			for range 4 * rounds {
				p := all[s.rnd.IntN(len(all))]
				to := floors[p] + s.rnd.IntN(len(prompt)-floors[p]+1)
				if to < len(p.at) {
					s.drop(p, p.at[to:])
					p.at = p.at[:to]
				} else {
					p.at = s.hold(p, prompt[:to])
				}
			}
		}, prompts, each)
	}
}

// Nobody is found with a block that it had at no time, though the node where it was
// looked for lost its tail and got another, or is another one by now. The common part
// fills half of the area that it is in together with a tail, so that it is cut there.
func TestWhatWasNeverHeldIsNeverFound(t *testing.T) {
	s := newStage(t)
	n := min(8, runtrie.Run+runtrie.Run/2)
	common, one, two := run(1, n), run(2, 10), run(3, 10)
	steady, all, liar, mover := s.join(), s.join(), s.join(), s.join()
	for _, p := range []*player{steady, all, liar, mover} {
		s.hold(p, common)
	}
	elsewhere := run(9, 6)
	s.hold(steady, elsewhere)
	asked := join(common, one)
	has := uint32(n)
	bounds := []bound{{steady, has, has}, {all, has, has + 10}, {liar, has, has + 1}, {mover, has, has}}
	each := [][]bound{bounds}
	prompts := [][]kvcache.BlockHash{asked}
	for _, b := range bounds {
		prompts, each = append(prompts, asked), append(each, []bound{b})
	}
	s.read(func() {
		for range rounds {
			a := s.hold(all, asked)
			l := s.hold(liar, asked[:n+1])
			s.drop(all, a[n:])
			s.drop(liar, l[n:])
			l = s.hold(liar, join(common, two)) // where the other tail was
			s.drop(liar, l[n:])
			m := s.hold(mover, join(elsewhere, one)) // what is asked for, behind something else
			s.drop(mover, m)
			s.trie.Lock()
			s.trie.Reclaim()
			s.trie.Unlock()
		}
	}, prompts, each)
}

// Some change between all blocks and fewer, or none; a reader may look at one place of a
// cover before such a change and at the other after it: the set and the list of a
// crowd, or a node's own cover and a crowd.
func TestNobodyIsLostBetweenTwoPlaces(t *testing.T) {
	full := uint32(min(11, runtrie.Run))
	for name, c := range map[string]struct {
		steady int
		less   uint32
	}{"set and list": {8, full / 2}, "few and crowd": {2, 0}} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			prompt := run(1, int(full))
			var moving []*player
			var bounds []bound
			for i := range c.steady + 4 {
				p := s.join()
				p.at = s.hold(p, prompt)
				least := full
				if i >= c.steady {
					moving, least = append(moving, p), c.less
				}
				bounds = append(bounds, bound{p, least, full})
			}
			spin := 0
			s.read(func() {
				for range 20 * rounds {
					p := moving[s.rnd.IntN(len(moving))]
					if len(p.at) > int(c.less) {
						s.drop(p, p.at[c.less:])
						p.at = p.at[:c.less]
					} else {
						p.at = s.hold(p, prompt)
					}
					for range s.rnd.IntN(2000) { // so that one change falls into one look, not several
						spin++
					}
				}
			}, [][]kvcache.BlockHash{prompt}, [][]bound{bounds})
		})
	}
}
