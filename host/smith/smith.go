package smith

import (
	"math/rand/v2"
	"slices"
)

// Options are the sizes of a valid module.
type Options struct {
	// Functions is the most functions that do something, at least 1.
	Functions int
	// Size is about how many instructions one body has at most.
	Size int
	// Steps is the first value of the countdown: how often a call of an export may enter functions and branch back.
	// At most 1,000, which no engine's stack is too small for.
	Steps int32
	// Imports allows functions of module "smith" to be imported.
	Imports bool
	// Unbounded allows lengths of memory operations of any size; without it none is above 65,535. An operation that
	// is too long traps, and may be refused before.
	Unbounded bool
}

// DefaultOptions are sizes for many small modules.
func DefaultOptions() Options {
	return Options{Functions: 6, Size: 120, Steps: 100, Imports: true}
}

// Module makes a valid module. It draws from rnd alone.
func Module(rnd *rand.Rand, o Options) []byte {
	m := &module{rnd: rnd, o: o, catalogue: newCatalogue()}
	m.layOut()
	for i := range m.bodies {
		m.bodies[i] = m.body(m.funcs[m.imports+i])
	}
	m.probes()
	return m.encode()
}

// signature is a function or block type.
type signature struct{ params, results []byte }

type global struct {
	kind    byte
	mutable bool
	init    []byte // without end
}

// segment is a data or element segment; active ones have an offset.
type segment struct {
	active  bool
	offset  int32
	bytes   []byte
	entries []int // function indices, -1 for null
	exprs   bool
}

// module is what is known of a module before its bodies are made.
type module struct {
	rnd       *rand.Rand
	o         Options
	catalogue *catalogue

	types    []signature
	imports  int
	funcs    []int // type of each function, imports first
	bodies   [][]byte
	globals  []global // the countdown is steps
	steps    int
	refs     byte // kind of the table
	entries  uint32
	most     uint32 // maximum of the table
	bounded  bool   // the table has a maximum
	pages    uint32
	maxPages uint32
	noMax    bool // the memory has no maximum
	elements []segment
	data     []segment
	numbered bool // there is a data count section
	start    int  // function, -1 for none
	exports  []export
}

type export struct {
	name  string
	kind  byte
	index int
}

// chance is true in percent of 100 draws.
func (m *module) chance(percent int) bool { return m.rnd.IntN(100) < percent }

func pick[T any](m *module, from []T) T { return from[m.rnd.IntN(len(from))] }

// typeIndex finds a signature among the types or adds it.
func (m *module) typeIndex(s signature) int {
	for i, t := range m.types {
		if slices.Equal(t.params, s.params) && slices.Equal(t.results, s.results) {
			return i
		}
	}
	m.types = append(m.types, s)
	return len(m.types) - 1
}

// catalogue is the list of instructions by result.
type catalogue struct {
	byResult map[byte][]Instruction
	stores   []Instruction
	all      []Instruction
}

func newCatalogue() *catalogue {
	c := &catalogue{byResult: map[byte][]Instruction{}, all: Instructions()}
	for _, in := range c.all {
		if len(in.Results) == 0 {
			c.stores = append(c.stores, in)
			continue
		}
		c.byResult[in.Results[0]] = append(c.byResult[in.Results[0]], in)
	}
	return c
}
