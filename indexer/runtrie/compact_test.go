package runtrie_test

import (
	"testing"

	"github.com/routerd/routerd/indexer/runtrie"
	"github.com/routerd/routerd/kvcache"
)

// Where most runs went, the rest is put together, some at a call, while readers look at it; the pages that get
// empty are given back.
func TestWhatStaysOfManyRunsIsPutTogether(t *testing.T) {
	const prompts = 6000
	s := newStage(t)
	p := s.join()
	var all [][]kvcache.BlockHash
	var refs [][]runtrie.Ref
	for i := range prompts * 128 / runtrie.Run {
		all = append(all, run(1+i, runtrie.Run))
		refs = append(refs, s.hold(p, all[i]))
	}
	full := s.trie.Bytes()
	var stay [][]kvcache.BlockHash
	var bounds [][]bound
	for i := 0; i < len(all); i += 50 {
		stay, bounds = append(stay, all[i]), append(bounds, []bound{{p, runtrie.Run, runtrie.Run}})
	}
	calls := 0
	s.read(func() {
		for i := range all {
			if i%5 > 0 {
				s.release(p, refs[i])
			}
		}
		for more := true; more; calls++ {
			s.trie.Lock()
			more = s.trie.Compact(8)
			s.trie.Unlock()
		}
	}, stay, bounds)
	s.trie.Lock()
	defer s.trie.Unlock()
	s.trie.Reclaim() // no reader is left
	s.trie.Reclaim()
	for s.trie.Compact(7) {
		calls++
	}
	if err := check(s.trie); err != nil {
		t.Error(err)
	}
	used, pages := s.trie.Words()
	t.Logf("%d bytes before, %d after, %d of %d words of all pages in use, in %d calls", full, s.trie.Bytes(), used, pages, calls)
	if want := int64(len(all) / 5 * runtrie.Run); used != want || used*8 < pages*6 {
		t.Errorf("%d of %d words are used, want %d", used, pages, want)
	}
	if s.trie.Leaving() != 0 || calls < 2 {
		t.Errorf("%d pages are left after %d calls", s.trie.Leaving(), calls)
	}
}
