package runtrie

import "sync/atomic"

// salts numbers the salts of chains, each for as long as a node has it. Number 0 is no
// salt.
type salts struct {
	inUse   atomic.Int64 // different ones
	numbers Sparse[uint64, uint32]
	all     []salted
	free    []uint32
}

type salted struct {
	salt  uint64
	nodes uint32
}

func newSalts() *salts { return &salts{all: make([]salted, 1)} }

func (s *salts) of(number uint32) uint64 { return s.all[number].salt }

// take returns the number of a salt for one node more.
func (s *salts) take(salt uint64) uint32 {
	if salt == 0 {
		return 0
	}
	number := s.numbers.Get(salt)
	switch {
	case number != 0:
	case len(s.free) > 0:
		number, s.free = s.free[len(s.free)-1], s.free[:len(s.free)-1]
		s.all[number] = salted{salt: salt}
		s.numbers.Put(salt, number)
		s.inUse.Add(1)
	default:
		number = uint32(len(s.all))
		s.all = append(s.all, salted{salt: salt})
		s.numbers.Put(salt, number)
		s.inUse.Add(1)
	}
	s.all[number].nodes++
	return number
}

// again is take for a number that a node has.
func (s *salts) again(number uint32) uint32 {
	if number != 0 {
		s.all[number].nodes++
	}
	return number
}

// drop ends one node's use of a number.
func (s *salts) drop(number uint32) {
	if number == 0 {
		return
	}
	if s.all[number].nodes--; s.all[number].nodes == 0 {
		s.numbers.Delete(s.all[number].salt)
		s.inUse.Add(-1)
		s.free = append(s.free, number)
	}
}
