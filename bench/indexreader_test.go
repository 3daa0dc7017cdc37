package bench_test

import (
	mathbits "math/bits"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/indexer"
	"github.com/routerd/routerd/kvcache"
)

// indexReader asks an index for prompts, of all workers.
type indexReader struct {
	x       indexer.Indexer
	prompts [][]kvcache.BlockHash
	asked   []fleet.Worker
	out     []kvcache.Overlap
}

// newIndexReader takes the queries of a plan.
func newIndexReader(x indexer.Indexer, p indexPlan) (*indexReader, error) {
	r := &indexReader{x: x, out: make([]kvcache.Overlap, p.workers())}
	for worker := range p.workers() {
		r.asked = append(r.asked, workerID(worker))
	}
	room, err := offHeap[kvcache.BlockHash](p.queries() * p.depth())
	if err != nil {
		return nil, err
	}
	for q := range p.queries() {
		for pos := range p.depth() {
			b, i := p.block(p.query(q), pos)
			room = append(room, kvcache.BlockHash(b.hash(i)))
		}
		r.prompts = append(r.prompts, room[len(room)-p.depth():])
	}
	return r, nil
}

// hits asks for every prompt once and tells, in the mean of a prompt, how many
// workers have some of it and how many blocks those have.
func (r *indexReader) hits() (workers, blocks float64) {
	for i := range r.prompts {
		r.find(i)
		for _, o := range r.out {
			if o.Device > 0 {
				workers++
				blocks += float64(o.Device)
			}
		}
	}
	n := float64(len(r.prompts))
	return workers / n, blocks / n
}

func (r *indexReader) find(i int) { r.x.Find(r.prompts[i%len(r.prompts)], r.asked, r.out) }

// alone is the CPU time of this thread for a find.
func (r *indexReader) alone() time.Duration {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	begun := threadTime()
	for i := range r.prompts {
		r.find(i)
	}
	return (threadTime() - begun) / time.Duration(len(r.prompts))
}

// besideReader is what a reader and a writer cost while both are at work.
type besideReader struct {
	writer time.Duration // CPU time of the process but for the reader's thread
	reader time.Duration // CPU time of a find
	took   *spread       // on the clock, of each find
}

// beside has a thread ask without pause while write is at work. The clock of the
// process is read while that thread does not run: it is late by what others are
// about to be charged for.
func (r *indexReader) beside(write func() error) (besideReader, error) {
	var stop atomic.Bool
	var got besideReader
	got.took = &spread{}
	begun, ended := make(chan struct{}), make(chan struct{})
	all := processTime()
	go func() {
		defer close(ended)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		cpu := threadTime()
		for i := 0; !stop.Load(); i++ {
			from := time.Now()
			r.find(i)
			got.took.add(time.Since(from))
			if i == 0 {
				close(begun)
			}
		}
		got.reader = threadTime() - cpu
	}()
	<-begun
	err := write()
	stop.Store(true)
	<-ended
	got.writer = processTime() - all - got.reader
	got.reader /= time.Duration(got.took.n)
	return got, err
}

// spread counts durations in bins of less than 2 % of their value.
type spread struct {
	bins  [64 * 64]int
	n     int
	worst time.Duration
}

func (s *spread) add(d time.Duration) {
	s.n++
	s.worst = max(s.worst, d)
	shift := max(0, mathbits.Len64(uint64(d))-7)
	s.bins[64*shift+int(d>>shift)]++
}

// share is the duration below which a share of all are; 0 when there is none.
func (s *spread) share(q float64) time.Duration {
	left := int(q * float64(s.n))
	for i, n := range s.bins {
		if left -= n; left < 0 {
			shift := max(0, i/64-1)
			return time.Duration((i - 64*shift) << shift)
		}
	}
	return s.worst
}
