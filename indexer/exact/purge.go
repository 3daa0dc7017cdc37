package exact

import (
	"github.com/routerd/routerd/indexer/runtrie"
	"github.com/routerd/routerd/kvcache"
)

// refs tells the blocks of all hashes.
func (t *table) refs(f func(runtrie.Ref)) {
	for i := range t.entries {
		if at := t.entries[i].ref; at != 0 {
			f(at)
		}
	}
	t.texts.each(func(_ []byte, at runtrie.Ref) { f(at) })
}

// starts appends the nodes of whose first blocks there are hashes, each as often as there are.
func (t *table) starts(ids []uint32) []uint32 {
	add := func(at runtrie.Ref) {
		if at.Starts() {
			id, _ := at.Node()
			ids = append(ids, id)
		}
	}
	// A large table is read at several places at a time, so that the misses overlap.
	part := len(t.entries) / 4
	a, b, c, d := t.entries[:part], t.entries[part:2*part], t.entries[2*part:3*part], t.entries[3*part:]
	for i := range a {
		if ra, rb, rc, rd := a[i].ref, b[i].ref, c[i].ref, d[i].ref; ra.Starts() || rb.Starts() || rc.Starts() || rd.Starts() {
			add(ra)
			add(rb)
			add(rc)
			add(rd)
		}
	}
	for i := part; i < len(d); i++ {
		add(d[i].ref)
	}
	t.texts.each(func(_ []byte, at runtrie.Ref) { add(at) })
	return ids
}

// goners are the hashes whose blocks go.
func (t *table) goners(goes func(runtrie.Ref) bool) (all []kvcache.EngineHash) {
	for i := range t.entries {
		if s := &t.entries[i]; s.ref != 0 && goes(s.ref) {
			all = append(all, kvcache.NumberHash(t.number(s)))
		}
	}
	t.texts.each(func(s []byte, at runtrie.Ref) {
		if e, ok := kvcache.BytesHash(s); ok && goes(at) {
			all = append(all, e)
		}
	})
	return all
}

// purge takes hashes that are there out, and with them all that is known of the blocks that go. The table gets as
// large as it needs to be.
func (t *table) purge(hashes []kvcache.EngineHash, goes func(runtrie.Ref) bool) {
	if len(hashes) == 0 {
		return
	}
	for _, e := range hashes {
		if _, number := e.Number(); number {
			t.numbers--
		} else {
			t.texts.take(e.Bytes())
		}
	}
	for i := range t.entries {
		if goes(t.entries[i].ref) {
			t.entries[i] = entry{}
		}
	}
	var several []runtrie.Ref
	for at := range t.extra.All() {
		if goes(at) {
			several = append(several, at)
		}
	}
	for _, at := range several {
		t.extra.Delete(at)
	}
	if len(t.entries) > 0 {
		t.resize(max(minEntries, t.numbers*4/3))
	}
}
