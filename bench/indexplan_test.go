package bench_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/routerd/routerd/core/policy"
)

// indexPlan is what an index is measured with: which worker holds which
// prompts, the events that tell of it, and the prompts that are asked for. Every
// contender reads it from a file of little-endian 64-bit words:
//
//	magic, workers, depth, tokens in a block, families, sequences, queries,
//	steps of the filling, of what comes next and of what comes last
//	for each family its blocks, depth/2 of them
//	for each sequence worker, family and the blocks behind the family's, depth/2
//	for each query the sequence that is asked for, at its full depth
//	for each step of the three phases
//	    sequence, plus 1<<63 where it is a removal
//	    from<<32 | to, the positions in the sequence
//
// A block has three words: its content, the hash of its tokens, and the name
// that engines give to it, which is its sequence hash. Its tokens are the halves
// of the numbers SplitMix64(content), SplitMix64(content+1), …, the low half first.
//
// A step is one event. A store names its blocks in order, and as parent the
// block before the first, if there is one; a removal names its blocks from the
// last to the first.
type indexPlan []byte

const (
	planMagic  = 0x315844494b565a31
	planHeader = 10 // words
	planPhases = 3
	blockWords = 3

	planBlockSize = 16
	planRemoval   = 1 << 63
)

// blocks are some blocks of a plan.
type blocks []byte

func (b blocks) word(i int) uint64    { return binary.LittleEndian.Uint64(b[8*i:]) }
func (b blocks) len() int             { return len(b) / (8 * blockWords) }
func (b blocks) content(i int) uint64 { return b.word(blockWords * i) }
func (b blocks) hash(i int) uint64    { return b.word(blockWords*i + 1) }
func (b blocks) name(i int) uint64    { return b.word(blockWords*i + 2) }

func (p indexPlan) word(i int) int { return int(binary.LittleEndian.Uint64(p[8*i:])) }
func (p indexPlan) workers() int   { return p.word(1) }
func (p indexPlan) depth() int     { return p.word(2) }
func (p indexPlan) half() int      { return p.depth() / 2 }
func (p indexPlan) families() int  { return p.word(4) }
func (p indexPlan) sequences() int { return p.word(5) }
func (p indexPlan) queries() int   { return p.word(6) }

// steps is how many a phase has.
func (p indexPlan) steps(phase int) int { return p.word(7 + phase) }

func (p indexPlan) family(f int) blocks {
	at := 8 * (planHeader + f*p.half()*blockWords)
	return blocks(p[at : at+8*blockWords*p.half()])
}

// sequenceAt is the word at which a sequence begins.
func (p indexPlan) sequenceAt(s int) int {
	return planHeader + p.families()*p.half()*blockWords + s*(2+p.half()*blockWords)
}

func (p indexPlan) sequence(s int) (worker, family int, own blocks) {
	at := p.sequenceAt(s)
	from := 8 * (at + 2)
	return p.word(at), p.word(at + 1), blocks(p[from : from+8*blockWords*p.half()])
}

// block returns where a block of a sequence is: in its family or behind that.
func (p indexPlan) block(s, pos int) (blocks, int) {
	_, family, own := p.sequence(s)
	if pos < p.half() {
		return p.family(family), pos
	}
	return own, pos - p.half()
}

func (p indexPlan) query(i int) int { return p.word(p.sequenceAt(p.sequences()) + i) }

// planStep is one event of a plan.
type planStep struct {
	sequence, from, to int
	removal            bool
}

func (p indexPlan) stepAt(phase int) int {
	at := p.sequenceAt(p.sequences()) + p.queries()
	for before := range phase {
		at += 2 * p.steps(before)
	}
	return at
}

func (p indexPlan) step(phase, i int) planStep {
	at := 8 * (p.stepAt(phase) + 2*i)
	what, span := binary.LittleEndian.Uint64(p[at:]), binary.LittleEndian.Uint64(p[at+8:])
	return planStep{int(what &^ planRemoval), int(span >> 32), int(uint32(span)), what&planRemoval != 0}
}

// mappedPlan maps a file for the life of the process, so that it is no part of
// the heap.
func mappedPlan(name string) (plan indexPlan, err error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() < 8*planHeader {
		return nil, fmt.Errorf("read %s: %d bytes are no plan of an index", name, info.Size())
	}
	plan, err = unix.Mmap(int(f.Fd()), 0, int(info.Size()), unix.PROT_READ, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return plan, plan.check()
}

// check tells whether a plan has the length that its head says.
func (p indexPlan) check() error {
	switch {
	case len(p) < 8*planHeader || p.word(0) != planMagic:
		return errors.New("no plan of an index")
	case p.word(3) != planBlockSize:
		return fmt.Errorf("plan of an index: %d tokens in a block, want %d", p.word(3), planBlockSize)
	case len(p) != 8*p.stepAt(planPhases):
		return fmt.Errorf("plan of an index: %d bytes, want %d", len(p), 8*p.stepAt(planPhases))
	}
	return nil
}

// appendTokens appends the tokens of a block.
func appendTokens(dst []uint32, content uint64) []uint32 {
	for i := range uint64(planBlockSize / 2) {
		pair := policy.SplitMix64(content + i)
		dst = append(dst, uint32(pair), uint32(pair>>32))
	}
	return dst
}
