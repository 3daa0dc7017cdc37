package sharedcache

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/routerd/routerd/kvcache"
)

var errInverted = errors.New("a range ends before it begins")

// decode appends the ranges of an answer to out, cut to positions below n,
// sorted and disjoint. The answer is one JSON object with the one field
// "ranges". With an error the elements of out are as before.
func decode(answer []byte, n uint32, out []kvcache.BlockRange) ([]kvcache.BlockRange, error) {
	s := scanner{rest: answer, size: len(answer)}
	old := len(out)
	s.want("{")
	s.want(`"ranges"`)
	s.want(":")
	s.want("[")
	for first := true; s.err == nil && !s.next("]"); first = false {
		if !first {
			s.want(",")
		}
		r := s.blockRange()
		if r.End = min(r.End, n); r.Start < r.End {
			out = append(out, r)
		}
	}
	s.want("}")
	s.end()
	if s.err != nil {
		return nil, s.err
	}
	return out[:old+disjoint(out[old:])], nil
}

// disjoint sorts ranges, joins those that overlap or touch, and returns how
// many are left at the beginning of the slice.
func disjoint(ranges []kvcache.BlockRange) int {
	if len(ranges) == 0 {
		return 0
	}
	slices.SortFunc(ranges, func(a, b kvcache.BlockRange) int { return cmp.Compare(a.Start, b.Start) })
	last := 0
	for _, r := range ranges[1:] {
		if r.Start <= ranges[last].End {
			ranges[last].End = max(ranges[last].End, r.End)
			continue
		}
		last++
		ranges[last] = r
	}
	return last + 1
}

// scanner reads the few forms of JSON that an answer has. After an error it
// reads nothing more.
type scanner struct {
	rest []byte
	size int
	err  error
}

func (s *scanner) space() {
	for len(s.rest) > 0 && (s.rest[0] == ' ' || s.rest[0] == '\n' || s.rest[0] == '\t' || s.rest[0] == '\r') {
		s.rest = s.rest[1:]
	}
}

// next takes token if it comes next.
func (s *scanner) next(token string) bool {
	if s.err != nil {
		return false
	}
	s.space()
	if len(s.rest) < len(token) || string(s.rest[:len(token)]) != token {
		return false
	}
	s.rest = s.rest[len(token):]
	return true
}

func (s *scanner) want(token string) {
	if !s.next(token) {
		s.fail(token)
	}
}

func (s *scanner) fail(wanted string) {
	if s.err == nil {
		s.err = fmt.Errorf("no %s at byte %d", wanted, s.size-len(s.rest))
	}
}

func (s *scanner) blockRange() kvcache.BlockRange {
	s.want("[")
	start := s.position()
	s.want(",")
	end := s.position()
	s.want("]")
	if s.err == nil && end < start {
		s.err = fmt.Errorf("%w: [%d,%d]", errInverted, start, end)
	}
	// Positions are cut before they are narrowed: a prompt has no more.
	const most = 1<<32 - 1
	return kvcache.BlockRange{Start: uint32(min(start, most)), End: uint32(min(end, most))}
}

// position is a whole number without sign, fraction, exponent and leading zero,
// of at most 19 digits, so that it cannot overflow.
func (s *scanner) position() uint64 {
	if s.err != nil {
		return 0
	}
	s.space()
	v, digits := uint64(0), 0
	for digits < len(s.rest) && s.rest[digits] >= '0' && s.rest[digits] <= '9' && digits < 20 {
		v = v*10 + uint64(s.rest[digits]-'0')
		digits++
	}
	if digits == 0 || digits == 20 || (digits > 1 && s.rest[0] == '0') {
		s.fail("block position")
		return 0
	}
	s.rest = s.rest[digits:]
	return v
}

func (s *scanner) end() {
	if s.space(); len(s.rest) > 0 {
		s.fail("end")
	}
}
