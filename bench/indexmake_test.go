package bench_test

import (
	"encoding/binary"
	"slices"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/kvcache"
)

// indexPart is one of the plans by which a fleet is measured. Each fills the
// index first.
type indexPart struct {
	name  string
	batch int // blocks of an event at most
	// next and last make the steps of the other phases.
	next, last func(m *planMaker)
}

// indexParts are the plans: events of 16 blocks, where a fourth of the suffixes
// goes beside a reader and then the rest; events of single blocks; and a full
// index in which every suffix gives way to a new one.
func indexParts() []indexPart {
	return []indexPart{
		{"batches", 16, func(m *planMaker) { m.removals(0, 1) }, func(m *planMaker) { m.removals(1, 4) }},
		{"singles", 1, func(*planMaker) {}, func(m *planMaker) { m.removals(0, 4) }},
		{"churn", 16, (*planMaker).churn, func(*planMaker) {}},
	}
}

// indexFleet is a size of what is measured.
type indexFleet struct{ workers, blocks, rounds int }

// planMaker makes a plan. All that is random in it comes from mix, so that the
// same arguments make the same plan.
type planMaker struct {
	workers, half, batch int
	families             [][]byte // blocks of each
	sequences            []planSequence
	suffixes             []byte // words of all sequences
	phases               [planPhases][]planStep
	phase                int

	// scratch of blocks
	hashes, one []kvcache.BlockHash
	names       []kvcache.SequenceHash
	tokens      []uint32
}

type planSequence struct {
	worker, family int
	whole          bool // the worker did not have the family's blocks before
}

// makePlan lets each worker take sequences of depth blocks until it holds at
// least the fleet's blocks. There are max(4, 4096/depth) families with half of the
// blocks in common; the other half is a sequence's own. Blocks that the worker
// has are not told again. The events of the workers come in turns. Sequences of
// the first phase are asked for.
func makePlan(fleet indexFleet, depth, queries int, part indexPart) indexPlan {
	m := &planMaker{workers: fleet.workers, half: depth / 2, batch: part.batch}
	for f := range max(4, 4096/depth) {
		m.families = append(m.families, m.blocks(nil, policy.SplitMix64(uint64(f)+1), nil))
	}
	for worker := range fleet.workers {
		had := make([]bool, len(m.families))
		for held, n := 0, 0; held < fleet.blocks; n++ {
			family := int(policy.SplitMix64(uint64(worker*1_000_003+n*7+13)) % uint64(len(m.families)))
			m.sequence(planSequence{worker, family, !had[family]})
			held += m.half
			if !had[family] {
				held += m.half
			}
			had[family] = true
		}
	}
	asked := m.queries(queries)
	m.fill()
	m.phase = 1
	part.next(m)
	m.phase = 2
	part.last(m)
	return m.plan(asked)
}

// blocks appends half of a sequence: what is behind the family's where that is
// not nil.
func (m *planMaker) blocks(dst []byte, seed uint64, family blocks) []byte {
	m.hashes = m.hashes[:0]
	for i := range family.len() {
		m.hashes = append(m.hashes, kvcache.BlockHash(family.hash(i)))
	}
	behind := len(m.hashes)
	for i := range m.half {
		m.tokens = appendTokens(m.tokens[:0], seed+uint64(i)<<8)
		m.one, _ = kvcache.BlockHashes(m.one, m.tokens, planBlockSize, kvcache.Seed("", "")) // the size is good
		m.hashes = append(m.hashes, m.one...)
	}
	m.names = kvcache.SequenceHashes(m.names, m.hashes)
	for i := range m.half {
		for _, word := range []uint64{seed + uint64(i)<<8, uint64(m.hashes[behind+i]), uint64(m.names[behind+i])} {
			dst = binary.LittleEndian.AppendUint64(dst, word)
		}
	}
	return dst
}

func (m *planMaker) sequence(s planSequence) {
	seed := policy.SplitMix64(uint64(len(m.sequences)) ^ 0xabcd<<40)
	m.sequences = append(m.sequences, s)
	m.suffixes = binary.LittleEndian.AppendUint64(m.suffixes, uint64(s.worker))
	m.suffixes = binary.LittleEndian.AppendUint64(m.suffixes, uint64(s.family))
	m.suffixes = m.blocks(m.suffixes, seed, m.families[s.family])
}

func (m *planMaker) queries(n int) []byte {
	var all []byte
	for i := range n {
		all = binary.LittleEndian.AppendUint64(all, policy.SplitMix64(uint64(i))%uint64(len(m.sequences)))
	}
	return all
}

// fill tells of all sequences, the events of the workers in turns.
func (m *planMaker) fill() {
	byWorker := make([][]planStep, m.workers)
	for s, of := range m.sequences {
		if of.whole {
			byWorker[of.worker] = m.stores(byWorker[of.worker], s, 0, m.half)
		}
		byWorker[of.worker] = m.stores(byWorker[of.worker], s, m.half, 2*m.half)
	}
	for turn, more := 0, true; more; turn++ {
		more = false
		for _, steps := range byWorker {
			if turn < len(steps) {
				m.phases[m.phase], more = append(m.phases[m.phase], steps[turn]), true
			}
		}
	}
}

func (m *planMaker) stores(dst []planStep, s, from, to int) []planStep {
	for ; from < to; from += m.batch {
		dst = append(dst, planStep{s, from, min(to, from+m.batch), false})
	}
	return dst
}

// removals takes the suffixes of the sequences whose number modulo 4 is from
// least to below end, the tail first.
func (m *planMaker) removals(least, end int) {
	for s := range m.sequences {
		if s%4 >= least && s%4 < end {
			m.remove(s)
		}
	}
}

func (m *planMaker) remove(s int) {
	for to := 2 * m.half; to > m.half; to -= m.batch {
		m.phases[m.phase] = append(m.phases[m.phase], planStep{s, max(m.half, to-m.batch), to, true})
	}
}

// churn replaces the suffix of each sequence once, worker by worker in turns:
// an old one goes, then a new one behind the same family comes.
func (m *planMaker) churn() {
	byWorker := make([][]int, m.workers)
	for s, of := range m.sequences {
		byWorker[of.worker] = append(byWorker[of.worker], s)
	}
	most := slices.MaxFunc(byWorker, func(a, b []int) int { return len(a) - len(b) })
	for n := range most {
		for worker, old := range byWorker {
			if n >= len(old) {
				continue
			}
			m.remove(old[n])
			m.sequence(planSequence{worker, m.sequences[old[n]].family, false})
			m.phases[m.phase] = m.stores(m.phases[m.phase], len(m.sequences)-1, m.half, 2*m.half)
		}
	}
}

// plan puts everything together.
func (m *planMaker) plan(queries []byte) indexPlan {
	var p []byte
	head := []int{planMagic, m.workers, 2 * m.half, planBlockSize, len(m.families), len(m.sequences), len(queries) / 8}
	for _, steps := range m.phases {
		head = append(head, len(steps))
	}
	for _, word := range head {
		p = binary.LittleEndian.AppendUint64(p, uint64(word))
	}
	for _, f := range m.families {
		p = append(p, f...)
	}
	p = append(p, m.suffixes...)
	p = append(p, queries...)
	for _, steps := range m.phases {
		p = slices.Grow(p, 16*len(steps))
		for _, s := range steps {
			what := uint64(s.sequence)
			if s.removal {
				what |= planRemoval
			}
			p = binary.LittleEndian.AppendUint64(p, what)
			p = binary.LittleEndian.AppendUint64(p, uint64(s.from)<<32|uint64(s.to))
		}
	}
	return p
}
