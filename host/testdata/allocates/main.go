// Command allocates is a guest whose every call allocates 1 MiB, in one piece or
// in small ones: the least loaded candidate wins.
package main

import "github.com/routerd/routerd/plugins/sdk/go/scorer"

func main() {} // never called: the module is a library

// Set by the linker to "yes". careless says that nothing is allocated, which is
// not true: the collector gets no turn in a call. small allocates 4 KiB at a time.
var careless, small string

// last and chain keep the compiler from leaving the allocations out.
var (
	last  []float64
	chain *link
)

type link struct {
	next *link
	_    [511]float64
}

func init() {
	scorer.Register(scorer.Plugin{
		Columns: []string{"load.active_requests"}, Score: fewest, NoAllocs: careless == "yes",
	})
}

func fewest(b *scorer.Batch) error {
	if small == "yes" {
		chain = nil
		for range 1 << 20 / 4096 {
			chain = &link{next: chain}
		}
		last = make([]float64, b.Len())
	} else {
		last = make([]float64, 1<<20/8)
	}
	active, scores := b.Column(0), b.Scores()
	for i := range b.Len() {
		last[i] = -active.At(i)
		scores.Set(i, last[i])
	}
	return nil
}
