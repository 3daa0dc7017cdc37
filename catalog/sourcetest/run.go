// Package sourcetest is the contract of catalog.Source in executable form. Every
// source runs it.
//
//	func TestTheContract(t *testing.T) {
//		sourcetest.Run(t, func(t *testing.T) sourcetest.Bench { … })
//	}
package sourcetest

import (
	"testing"
	"time"

	"github.com/routerd/routerd/catalog"
	"github.com/routerd/routerd/fleet"
)

// Bench is a source with the place that it reads, made anew for each rule.
type Bench struct {
	Source catalog.Source
	// Set makes records all that the place holds.
	Set func([]fleet.Record)
	// Break makes the place unreachable and Mend undoes it; nil for one that cannot
	// be lost.
	Break, Mend func()
	// Worker makes a worker that the place can hold, another one for each n from 1
	// to 9; nil has the rules make some.
	Worker func(n int) fleet.Record
	// Unique says that the place cannot hold one worker twice, Bare that it holds
	// nothing of a worker but where it is.
	Unique, Bare bool
	// Patience is how long the rules wait for what must come; 0 is 5 s.
	Patience time.Duration
}

// Run checks every rule of a source, each with a bench of its own.
func Run(t *testing.T, bench func(t *testing.T) Bench) {
	t.Helper()
	for _, r := range rules() {
		t.Run(r.name, func(t *testing.T) {
			b := bench(t)
			if _, err := normalised(b.workers([]int{1, 2, 3, 4, 5, 6, 7, 8, 9})); err != nil {
				t.Fatalf("Bench.Worker: %v", err)
			}
			if err := r.check(b); err != nil {
				t.Error(err)
			}
		})
	}
}
