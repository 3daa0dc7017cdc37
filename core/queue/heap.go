package queue

// item is what a heap orders: before is a strict order, and moved is told of the
// item's place whenever that changes.
type item[T any] interface {
	before(T) bool
	moved(to int)
}

// heap is a binary heap, the first item at 0, the children of i at 2i+1 and
// 2i+2. Items know their places, so that any of them can be taken out.
type heap[T item[T]] []T

func (h *heap[T]) push(x T) {
	*h = append(*h, x)
	h.up(len(*h) - 1)
}

func (h *heap[T]) remove(i int) {
	s := *h
	last := len(s) - 1
	moved := s[last]
	var none T
	s[last] = none
	*h = s[:last]
	if i < last {
		s[i] = moved
		h.fix(i)
	}
}

// fix puts the item at i, whose key may have changed, into its place.
func (h heap[T]) fix(i int) {
	if !h.down(i) {
		h.up(i)
	}
}

func (h heap[T]) up(i int) {
	x := h[i]
	for i > 0 {
		parent := (i - 1) / 2
		if !x.before(h[parent]) {
			break
		}
		h.set(i, h[parent])
		i = parent
	}
	h.set(i, x)
}

// down reports whether the item at i has moved.
func (h heap[T]) down(i int) bool {
	x, from := h[i], i
	for {
		child := 2*i + 1
		if child >= len(h) {
			break
		}
		if child+1 < len(h) && h[child+1].before(h[child]) {
			child++
		}
		if !h[child].before(x) {
			break
		}
		h.set(i, h[child])
		i = child
	}
	h.set(i, x)
	return i != from
}

func (h heap[T]) set(i int, x T) {
	h[i] = x
	x.moved(i)
}
