package lora

import "time"

// window counts arrivals of the last seconds, one bucket a second. It has no
// lock.
type window struct {
	buckets []uint32
	newest  int64 // the second of the last bucket that was written
	sum     uint64
}

func newWindow(length time.Duration) *window {
	return &window{buckets: make([]uint32, max(1, int(length/time.Second)))}
}

// add counts one arrival in a second; one of the past counts as of the newest.
func (w *window) add(second int64) {
	w.advance(second)
	w.buckets[w.newest%int64(len(w.buckets))]++
	w.sum++
}

// total is the count of the window that ends with the second.
func (w *window) total(second int64) uint64 {
	w.advance(second)
	return w.sum
}

// advance empties the buckets that fall out of the window.
func (w *window) advance(second int64) {
	n := int64(len(w.buckets))
	if second-w.newest >= n {
		clear(w.buckets)
		w.sum, w.newest = 0, second
		return
	}
	for w.newest < second {
		w.newest++
		old := &w.buckets[w.newest%n]
		w.sum -= uint64(*old)
		*old = 0
	}
}
