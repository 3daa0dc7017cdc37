// Package hostiletest makes hostile modules for tests of a host: policy modules that attack the load or a call, each
// with what must become of it.
//
//	rnd := rand.New(rand.NewPCG(seed, 0))
//	sp := hostiletest.Module(rnd, n) // the n-th of a sequence in which families take turns
//
// # What it owns
//
// The families: modules around each static limit of the ABI (Bounds), guests that pass the load and go wrong in a
// call, as a scorer or as another kind, that go wrong while they are set up, that are written in forms which two
// readers could read differently, and damaged bytes. The limits stand here once more, as numbers, so that one that is lost elsewhere shows.
//
// # Invariants
//
// Equal draws give equal bytes. A guest that goes wrong in a call does so for TriggerSeed alone and answers every
// other call with the negated load.active_requests of each row, as a filter with every row, as a picker with the
// first, unless it says otherwise. Nothing here starts goroutines.
package hostiletest

import (
	"fmt"
	"math/rand/v2"

	"github.com/routerd/routerd/plugins/abi"
)

// TriggerSeed is the frame's seed for which a guest that is spared by the
// self-test goes wrong: the self-test draws its seeds, so it meets this one by
// accident only.
const TriggerSeed = 666

// Specimen is one hostile module with what must become of it.
type Specimen struct {
	Family string // what kind of attack it is; one of Families
	Name   string // the family with the parameters of this one
	Bytes  []byte
	Kind   abi.Kind // what it is to be called as; empty for a scorer
	Want   Want
}

// Want is what must become of a specimen. Exactly one of Any, Loads and Refused
// says how the load ends; Also adds to it.
type Want struct {
	// Any says that only the form of the ending is known: bytes were changed at random.
	Any bool
	// Loads says that the module must be accepted.
	Loads bool
	// Refused lists the refusals of which one must come.
	Refused []Refusal
	// Also lists refusals that hang on the machine and the operator's limits: of time and memory.
	Also []Refusal
	// Faults are the reasons of which a call with TriggerSeed must end with one; the empty string
	// stands for a result. None: the specimen answers that call as any other. A deadline may come in
	// the place of fuel.
	Faults []string
	// Wild says that other calls need not give the negated load.active_requests of each row.
	Wild bool
}

// Refusal is the step and the code of a refusal, with a part of the offending item.
type Refusal struct{ Step, Code, Item string }

// family makes specimens of one kind.
type family struct {
	name string
	make func(rnd *rand.Rand, examples [][]byte) Specimen
}

// Module makes the n-th specimen of a sequence: families take turns, rnd draws
// the parameters. The same n, the same state of rnd and the same examples give
// the same bytes. examples are real modules for the families that damage some;
// there may be none. The caller owns the bytes.
func Module(rnd *rand.Rand, n int, examples ...[]byte) Specimen {
	all := families()
	f := all[n%len(all)]
	s := f.make(rnd, examples)
	s.Family = f.name
	if s.Name == "" {
		s.Name = f.name
	} else {
		s.Name = f.name + ", " + s.Name
	}
	return s
}

// Families lists the names of all families in the order of their turns. The
// caller owns the slice.
func Families() []string {
	var names []string
	for _, f := range families() {
		names = append(names, f.name)
	}
	return names
}

func families() []family {
	var all []family
	for _, b := range Bounds() {
		all = append(all, family{b.Name, func(rnd *rand.Rand, _ [][]byte) Specimen { return b.near(rnd) }})
	}
	all = append(all, callFamilies()...)
	all = append(all, kindFamilies()...)
	all = append(all, setUpFamilies()...)
	all = append(all, formFamilies()...)
	return append(all, byteFamilies()...)
}

// mustLoad is a specimen that must load and answer every call, but calls with
// TriggerSeed only as faults say.
func mustLoad(name string, wasm []byte, faults ...string) Specimen {
	return Specimen{Name: name, Bytes: wasm, Want: Want{Loads: true, Faults: faults}}
}

// compileLimit is that the compiler ran into its limits.
func compileLimit() []Refusal { return []Refusal{{"compile", "E_COMPILE_LIMIT", ""}} }

// shortOfMemory is that the memory of all instances together does not do for
// two guests with so many pages.
func shortOfMemory(pages int) []Refusal {
	if pages < 512 {
		return nil
	}
	return []Refusal{{stepStart, "E_POOL", "pages of memory"}}
}

// mustRefuse is a specimen that must be refused.
func mustRefuse(name string, wasm []byte, step, code, item string) Specimen {
	return Specimen{Name: name, Bytes: wasm, Want: Want{Refused: []Refusal{{step, code, item}}}}
}

// oneOf draws one of a few.
func oneOf[T any](rnd *rand.Rand, of ...T) T { return of[rnd.IntN(len(of))] }

// between draws a number from lo to hi, both included.
func between(rnd *rand.Rand, lo, hi int) int { return lo + rnd.IntN(hi-lo+1) }

func named(what string, n int) string { return fmt.Sprintf("%s %d", what, n) }
