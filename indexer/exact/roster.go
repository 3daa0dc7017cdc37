package exact

import (
	"maps"
	"sync"
	"sync/atomic"

	"github.com/routerd/routerd/fleet"
)

// roster is who is known. It is looked at with each event and changes seldom: whoever changes it makes a new map.
type roster struct {
	mu   sync.Mutex // of those who change it
	most int        // workers since the map was last made from nothing, which a copy has room for
	all  atomic.Pointer[map[fleet.Worker]*holder]
}

func newRoster() *roster {
	r := &roster{}
	r.all.Store(&map[fleet.Worker]*holder{})
	return r
}

// Load returns the holder of w, or nil.
func (r *roster) Load(w fleet.Worker) *holder { return (*r.all.Load())[w] }

// LoadOrStore returns the holder of w, made if there was none, and whether there was one.
func (r *roster) LoadOrStore(w fleet.Worker) (h *holder, was bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if h = r.Load(w); h != nil {
		return h, true
	}
	all := maps.Clone(*r.all.Load())
	all[w] = newHolder(w)
	r.most = max(r.most, len(all))
	r.all.Store(&all)
	return all[w], false
}

// Delete takes w out.
func (r *roster) Delete(w fleet.Worker) {
	r.mu.Lock()
	defer r.mu.Unlock()
	was := *r.all.Load()
	if _, ok := was[w]; !ok {
		return
	}
	left := len(was) - 1
	if left > r.most/2 {
		all := maps.Clone(was)
		delete(all, w)
		r.all.Store(&all)
		return
	}
	all := make(map[fleet.Worker]*holder, left)
	for v, h := range was {
		if v != w {
			all[v] = h
		}
	}
	r.most = left
	r.all.Store(&all)
}

// Range calls f with each holder until it has enough.
func (r *roster) Range(f func(fleet.Worker, *holder) bool) {
	for w, h := range *r.all.Load() {
		if !f(w, h) {
			return
		}
	}
}
