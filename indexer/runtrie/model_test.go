package runtrie_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/routerd/routerd/indexer/runtrie"
	"github.com/routerd/routerd/kvcache"
)

// modelled is a trie beside a plain model: for each holder, the paths that it has.
type modelled struct {
	trie    *runtrie.Trie
	seed    uint64
	rnd     *rand.Rand
	prompts [][]kvcache.BlockHash
	holders []*modelHolder
	query   *runtrie.Query
}

type modelHolder struct {
	*runtrie.Holder
	has map[string]runtrie.Ref // by path
}

func newModelled(t *testing.T, seed uint64) *modelled {
	t.Helper()
	m := &modelled{trie: runtrie.New(runtrie.MaxNodes), seed: seed, rnd: rand.New(rand.NewPCG(seed, 1)), query: runtrie.NewQuery()}
	for range 3 + m.rnd.IntN(68) {
		m.holders = append(m.holders, m.join(t))
	}
	longest := []int{6, 20, 300}[m.rnd.IntN(3)]
	for range 12 {
		var p []kvcache.BlockHash
		if len(m.prompts) > 0 && m.rnd.IntN(4) > 0 { // one that shares its beginning with another
			other := m.prompts[m.rnd.IntN(len(m.prompts))]
			p = append(p, other[:m.rnd.IntN(len(other)+1)]...)
		}
		for want := 1 + m.rnd.IntN(longest); len(p) < want; {
			p = append(p, kvcache.BlockHash(1+m.rnd.IntN(3)))
		}
		m.prompts = append(m.prompts, p)
	}
	return m
}

func (m *modelled) join(t *testing.T) *modelHolder {
	t.Helper()
	h, err := m.trie.Join()
	if err != nil {
		t.Fatal(err)
	}
	return &modelHolder{h, map[string]runtrie.Ref{}}
}

func pathOf(blocks []kvcache.BlockHash) string {
	b := make([]byte, len(blocks))
	for i, h := range blocks {
		b[i] = byte(h)
	}
	return string(b)
}

// store gives a holder a part of a prompt behind what somebody has.
func (m *modelled) store(t *testing.T) {
	t.Helper()
	h, p := m.any(), m.prompt()
	from, behind := 0, runtrie.Ref(0)
	for from < len(p) && m.rnd.IntN(20) > 0 {
		at, ok := h.has[pathOf(p[:from+1])]
		if !ok {
			break
		}
		from, behind = from+1, at
	}
	to := from + m.rnd.IntN(len(p)-from+1)
	m.trie.Lock()
	defer m.trie.Unlock()
	path, err := m.trie.Grow(nil, behind, 0, p[from:to])
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range path {
		had := m.trie.Hold(s.Node, h.Holder, runtrie.Positions(s.From, s.To))
		for pos := s.From; pos < s.To; pos++ {
			from++
			at := runtrie.RefOf(s.Node, pos)
			if was, known := h.has[pathOf(p[:from])]; known != had.Has(pos) || known && was != at {
				t.Fatalf("block %d of %v is %d, was %d, had %v", from, p, at, was, had.Has(pos))
			}
			h.has[pathOf(p[:from])] = at
		}
	}
	if from != to {
		t.Fatalf("the path has %d blocks, want %d", from, to)
	}
}

// drop takes some of a prompt, or of anything, from a holder.
func (m *modelled) drop() {
	h, p := m.any(), m.prompt()
	var gone []string
	switch m.rnd.IntN(4) {
	case 0: // here and there
		for path := range h.has {
			if m.rnd.IntN(3) == 0 {
				gone = append(gone, path)
			}
		}
		slices.Sort(gone)
	case 1: // one
		gone = append(gone, pathOf(p[:m.rnd.IntN(len(p)+1)]))
	default: // the end
		for n := range len(p) - m.rnd.IntN(len(p)) {
			gone = append(gone, pathOf(p[:len(p)-n]))
		}
	}
	m.take(h, gone)
}

func (m *modelled) take(h *modelHolder, gone []string) {
	m.trie.Lock()
	defer m.trie.Unlock()
	for _, path := range gone {
		if at, has := h.has[path]; has {
			id, pos := at.Node()
			m.trie.Drop(id, h.Holder, runtrie.Positions(pos, pos+1))
			delete(h.has, path)
		}
	}
}

func (m *modelled) any() *modelHolder { return m.holders[m.rnd.IntN(len(m.holders))] }

func (m *modelled) prompt() []kvcache.BlockHash { return m.prompts[m.rnd.IntN(len(m.prompts))] }

// find compares what is found of a prompt with the model.
func (m *modelled) find() error {
	p := slices.Clone(m.prompt())
	if n := m.rnd.IntN(2 * len(p)); n < len(p) && m.rnd.IntN(3) == 0 {
		p[n] = kvcache.BlockHash(1 + m.rnd.IntN(4))
	}
	m.query.Reset()
	asked := 1 + m.rnd.IntN(len(m.holders))
	for _, h := range m.holders[:asked] {
		m.query.Ask(h.Slot())
	}
	m.trie.Pin(m.query)
	m.trie.Find(m.query, p)
	m.trie.Unpin(m.query)
	for i, h := range m.holders[:asked] {
		want := 0
		for want < len(p) {
			if _, has := h.has[pathOf(p[:want+1])]; !has {
				break
			}
			want++
		}
		if got := m.query.Length(h.Slot()); int(got) != want {
			return fmt.Errorf("holder %d has %d blocks of %v, found %d", i, want, p, got)
		}
	}
	return nil
}

// steps does things at random and compares.
func (m *modelled) steps(t *testing.T, n int) {
	t.Helper()
	for i := range n {
		switch m.rnd.IntN(10) {
		case 0, 1, 2, 3:
			m.store(t)
		case 4, 5:
			m.drop()
		case 6:
			if m.rnd.IntN(8) == 0 { // somebody leaves, and somebody comes
				k := m.rnd.IntN(len(m.holders))
				m.take(m.holders[k], slices.Sorted(maps.Keys(m.holders[k].has)))
				m.trie.Lock()
				m.trie.Leave(m.holders[k].Holder)
				m.holders[k] = m.join(t)
				m.trie.Unlock()
			}
		default:
			if err := m.find(); err != nil {
				t.Fatalf("seed %d, step %d: %v", m.seed, i, err)
			}
		}
		m.trie.Lock()
		if m.rnd.IntN(4) == 0 {
			m.trie.Vacate(m.rnd.Int())
		}
		m.trie.Compact(8)
		err := check(m.trie)
		m.trie.Unlock()
		if err != nil {
			t.Fatalf("seed %d, step %d: %v", m.seed, i, err)
		}
	}
}

func TestATrieEqualsThePlainModel(t *testing.T) {
	for seed := range uint64(seeds) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			sequence(t, seed)
		})
	}
}

// sequence does random things with a trie, then takes everything out.
func sequence(t *testing.T, seed uint64) {
	t.Helper()
	m := newModelled(t, seed)
	m.steps(t, 300)
	for _, h := range m.holders {
		m.take(h, slices.Sorted(maps.Keys(h.has)))
	}
	m.trie.Lock()
	defer m.trie.Unlock()
	if err := check(m.trie); err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	m.trie.Reclaim()
	if n := m.trie.Nodes(); n != 0 || leftOver(m.trie) != 0 {
		t.Errorf("seed %d: %d nodes are left, %d numbers wait", seed, n, leftOver(m.trie))
	}
}
