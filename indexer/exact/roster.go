package exact

import (
	"math/bits"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"github.com/routerd/routerd/fleet"
)

// roster is who is known. It is looked at with each event and changes seldom: whoever changes it makes a new list.
type roster struct {
	mu     sync.Mutex // of those who change it
	secret uint64     // odd
	all    atomic.Pointer[[]*holder]
}

func newRoster() *roster {
	r := &roster{secret: rand.Uint64() | 1}
	r.store(nil)
	return r
}

// store has some holders be all that there are: each at the place that its number tells or, where others are, behind
// it; at least half of the places are empty.
func (r *roster) store(holders []*holder) {
	all := make([]*holder, 2<<bits.Len(uint(len(holders))))
	for _, h := range holders {
		i := r.place(all, h.who)
		for all[i] != nil {
			i = (i + 1) & (len(all) - 1)
		}
		all[i] = h
	}
	r.all.Store(&all)
}

// place is where a search for w begins.
func (r *roster) place(all []*holder, w fleet.Worker) int {
	return int((uint64(w.ID) + uint64(w.Rank)<<32) * r.secret >> (65 - bits.Len(uint(len(all)))))
}

// Load returns the holder of w, or nil.
func (r *roster) Load(w fleet.Worker) *holder {
	all := *r.all.Load()
	for i := r.place(all, w); ; i++ {
		if h := all[i&(len(all)-1)]; h == nil || h.who == w {
			return h
		}
	}
}

// LoadOrStore returns the holder of w, made if there was none, and whether there was one.
func (r *roster) LoadOrStore(w fleet.Worker) (h *holder, was bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if h = r.Load(w); h != nil {
		return h, true
	}
	h = newHolder(w)
	r.store(append(r.others(w), h))
	return h, false
}

// Delete takes w out.
func (r *roster) Delete(w fleet.Worker) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.Load(w) != nil {
		r.store(r.others(w))
	}
}

// others are the holders of all but w.
func (r *roster) others(w fleet.Worker) (all []*holder) {
	r.Range(func(v fleet.Worker, h *holder) bool {
		if v != w {
			all = append(all, h)
		}
		return true
	})
	return all
}

// Range calls f with each holder until it has enough.
func (r *roster) Range(f func(fleet.Worker, *holder) bool) {
	for _, h := range *r.all.Load() {
		if h != nil && !f(h.who, h) {
			return
		}
	}
}
