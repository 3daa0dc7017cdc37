package runtrie

import (
	"iter"
	"math/bits"
	"math/rand/v2"
	"unsafe"
)

const (
	minSparse = 4
	bigSparse = 32 << 10 // entries from which on a table grows by half
)

// Sparse maps a few of many numbers to values; neither is ever 0. Unlike a map it gives memory back when
// entries go, and tells how much it has. The zero value is empty.
type Sparse[K ~uint32 | ~uint64, V comparable] struct {
	entries []sparseEntry[K, V]
	n       int
	secret  uint64 // odd
	memory  int64  // bytes of the entries
}

type sparseEntry[K ~uint32 | ~uint64, V comparable] struct {
	key K // 0 for none
	val V
}

// Len is how many entries there are.
func (s *Sparse[K, V]) Len() int { return s.n }

// Bytes is the memory of the entries.
func (s *Sparse[K, V]) Bytes() int64 { return s.memory }

func (s *Sparse[K, V]) home(k K) int {
	hi, _ := bits.Mul64(uint64(k)*s.secret, uint64(len(s.entries)))
	return int(hi)
}

// place is where a key is, or would be.
func (s *Sparse[K, V]) place(k K) int {
	for i := s.home(k); ; i++ {
		if i == len(s.entries) {
			i = 0
		}
		if at := s.entries[i].key; at == k || at == 0 {
			return i
		}
	}
}

// Get returns the value of a key, 0 when it has none.
func (s *Sparse[K, V]) Get(k K) (v V) {
	if s.n == 0 {
		return v
	}
	return s.entries[s.place(k)].val
}

// Put gives a key a value.
func (s *Sparse[K, V]) Put(k K, v V) {
	if (s.n+1)*5 > len(s.entries)*4 {
		size := max(minSparse, 2*len(s.entries))
		if len(s.entries) >= bigSparse {
			size = len(s.entries) / 2 * 3
		}
		s.resize(size)
	}
	e := &s.entries[s.place(k)]
	if e.key == 0 {
		s.n++
	}
	*e = sparseEntry[K, V]{k, v}
}

// Delete takes a key's value out, if it has one.
func (s *Sparse[K, V]) Delete(k K) {
	if s.n == 0 {
		return
	}
	hole := s.place(k)
	if s.entries[hole].key == 0 {
		return
	}
	s.n--
	for i := hole; ; {
		if i++; i == len(s.entries) {
			i = 0
		}
		e := &s.entries[i]
		if e.key == 0 {
			break
		}
		home := s.home(e.key)
		if between := hole < home && home <= i || i < hole && (hole < home || home <= i); !between {
			s.entries[hole], hole = *e, i
		}
	}
	s.entries[hole] = sparseEntry[K, V]{}
	switch {
	case s.n == 0:
		s.entries, s.memory = nil, 0
	case len(s.entries) > minSparse && s.n*4 < len(s.entries):
		s.resize(max(minSparse, s.n*2))
	}
}

func (s *Sparse[K, V]) resize(size int) {
	if s.secret == 0 {
		s.secret = rand.Uint64() | 1
	}
	was := s.entries
	s.entries, s.memory = make([]sparseEntry[K, V], size), HeapBytes(size*int(unsafe.Sizeof(sparseEntry[K, V]{})))
	for i := range was {
		if was[i].key != 0 {
			s.entries[s.place(was[i].key)] = was[i]
		}
	}
}

// All are the entries, in no order. They must not change meanwhile.
func (s *Sparse[K, V]) All() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		for i := range s.entries {
			if e := &s.entries[i]; e.key != 0 && !yield(e.key, e.val) {
				return
			}
		}
	}
}

// HeapBytes is, within a few per cent, what the allocator uses for an object of n bytes.
func HeapBytes(n int) int64 {
	step := 8
	switch {
	case n > 32<<10:
		step = 8 << 10
	case n > 128:
		step = max(16, 1<<bits.Len(uint(n-1))>>4)
	case n > 32:
		step = 16
	}
	return int64((n + step - 1) / step * step)
}
