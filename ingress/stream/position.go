package stream

import (
	"encoding/binary"
	"fmt"

	"github.com/routerd/routerd/internal/cursor"
)

// Position is where a stream stands: what another stream of the same publisher needs to go on from there, beside what
// the messages made. Its bytes are MarshalBinary's.
type Position struct {
	last     uint64
	kept     []digest // ascending by number
	complete bool
	loss     string
	lossSeq  uint64

	missing                  bool
	repairFrom, missingCount uint64
	failed                   Result // why it is missing
}

// Last is the number of the last message that was applied.
func (p *Position) Last() uint64 { return p.last }

// Position returns where the stream stands. It is false for a stream that has applied nothing since its engine started,
// and while it is in doubt whether that has happened.
func (s *Stream) Position() (Position, bool) {
	if !s.has || s.doubt != nil {
		return Position{}, false
	}
	return Position{
		last: s.last, kept: s.kept.list(), complete: s.complete, loss: s.loss, lossSeq: s.lossSeq,
		missing: s.missing, repairFrom: s.repairFrom, missingCount: s.missingCount, failed: s.counts.LastFailure,
	}, true
}

// Resume has a new stream, of which nothing was reported yet, go on from a position; what the messages up to there made
// is in place. Its first connection then is a reconnect. Until the publisher has proven to be the one from before, the
// stream is not trusted.
func (s *Stream) Resume(p Position) {
	s.has, s.last, s.resumed = true, p.last, true
	for _, d := range p.kept {
		s.kept.set(d.seq, d.sum)
	}
	s.complete, s.loss, s.lossSeq = p.complete, p.loss, p.lossSeq
	s.missing, s.repairFrom, s.missingCount = p.missing, p.repairFrom, p.missingCount
	if p.missing {
		s.counts.LastFailure = p.failed
	}
}

// The flags of a position's first byte.
const (
	flagComplete = 1 << iota
	flagMissing
	flagLoss
	flagsKnown = 1<<iota - 1
)

// maxLoss is the longest reason of a loss, in bytes.
const maxLoss = 256

// MarshalBinary writes the flags, as varints the last number, of what is missing the first, the count and a Result, and
// the reason of a loss (its length and its text) with its number; then how many digests there are and each, as a varint of how far
// its number is above the one before and the sum, little-endian.
func (p *Position) MarshalBinary() ([]byte, error) {
	b := append(make([]byte, 0, 64+10*len(p.kept)), 0)
	b = binary.AppendUvarint(b, p.last)
	if p.complete {
		b[0] |= flagComplete
	}
	if p.missing {
		b[0] |= flagMissing
		b = binary.AppendUvarint(binary.AppendUvarint(b, p.repairFrom), p.missingCount)
		b = binary.AppendUvarint(b, uint64(p.failed))
	}
	if p.loss != "" {
		b[0] |= flagLoss
		b = append(binary.AppendUvarint(b, uint64(len(p.loss))), p.loss...)
		b = binary.AppendUvarint(b, p.lossSeq)
	}
	b = binary.AppendUvarint(b, uint64(len(p.kept)))
	before := uint64(0)
	for _, d := range p.kept {
		b = binary.LittleEndian.AppendUint64(binary.AppendUvarint(b, d.seq-before), d.sum)
		before = d.seq
	}
	return b, nil
}

// UnmarshalBinary reads what MarshalBinary wrote. An error leaves p as it was.
func (p *Position) UnmarshalBinary(b []byte) error {
	c := cursor.New(b)
	var got Position
	flags := c.Byte()
	if flags > flagsKnown {
		c.Fail("the flags are %#x", flags)
	}
	got.last, got.complete = c.Number(), flags&flagComplete != 0
	if flags&flagMissing != 0 {
		got.missing, got.repairFrom, got.missingCount = true, c.Number(), c.Number()
		got.failed = Result(c.AtMost(int(results) - 1))
	}
	if flags&flagLoss != 0 {
		got.loss = string(c.Bytes(c.AtMost(maxLoss)))
		got.lossSeq = c.Number()
		if got.loss == "" {
			c.Fail("the reason of a loss is empty")
		}
	}
	got.kept = readDigests(c)
	if err := c.End(); err != nil {
		return fmt.Errorf("read position of a stream: %w", err)
	}
	*p = got
	return nil
}

func readDigests(c *cursor.Cursor) []digest {
	kept := make([]digest, c.AtMost(digestsKept+2))
	seq := uint64(0)
	for i := range kept {
		step := c.Number()
		if i > 0 && step == 0 || seq+step < seq {
			c.Fail("the numbers of digests do not ascend")
		}
		seq += step
		kept[i] = digest{seq, c.Uint64(), true}
	}
	return kept
}
