package bench_test

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"sync"
	"time"

	"github.com/routerd/routerd/indexer"
	"github.com/routerd/routerd/indexer/exact"
	"github.com/routerd/routerd/kvcache"
)

// measureExact is the whole life of the child that measures our index by a plan
// for one round. It tells its figures as every contender does.
func measureExact(out io.Writer, part, file string) error {
	p, err := mappedPlan(file)
	if err != nil {
		return err
	}
	m := &exactMeter{plan: p, index: exact.New(planBlockSize), told: figures{}}
	switch part {
	case "batches":
		err = m.batches()
	case "singles":
		err = m.singles()
	case "churn":
		err = m.churn()
	default:
		err = fmt.Errorf("part %q: must be batches, singles or churn", part)
	}
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(m.told)
}

// exactMeter measures our index by a plan. CPU time is that of the process, the
// garbage collector's included.
type exactMeter struct {
	plan   indexPlan
	index  *exact.Index
	reader *indexReader
	told   figures
}

func (m *exactMeter) batches() error {
	if err := m.fill("store16-cpu-ns/block", "hash16-cpu-ns/block", "bytes16/block"); err != nil {
		return err
	}
	m.told["find-cpu-us"] = m.reader.alone().Seconds() * 1e6
	both, err := m.beside("beside-remove-cpu-ns/block")
	if err != nil {
		return err
	}
	m.told["beside-find-cpu-us"] = both.reader.Seconds() * 1e6
	m.told["beside-find-worst-us"] = both.took.worst.Seconds() * 1e6
	return m.remove("remove16-cpu-ns/block")
}

// beside makes the plan's next changes beside the reader, and tells what they cost.
func (m *exactMeter) beside(unit string) (besideReader, error) {
	f, err := m.feed(1)
	if err != nil {
		return besideReader{}, err
	}
	both, err := m.reader.beside(func() error { return f.apply(m.index) })
	m.told[unit] = per(both.writer, f)
	return both, err
}

func (m *exactMeter) singles() error {
	if err := m.fill("store1-cpu-ns/block", "hash1-cpu-ns/block", "bytes1/block"); err != nil {
		return err
	}
	return m.remove("remove1-cpu-ns/block")
}

// fill measures the first phase: its time, that of its tokens' hashing alone, and the heap that is in use behind it.
func (m *exactMeter) fill(cpu, hashing, bytes string) error {
	f, err := m.feed(0)
	if err != nil {
		return err
	}
	begun := processTime()
	f.hash()
	m.told[hashing] = per(processTime()-begun, f)
	before := float64(heapInUse())
	took, err := timed(f, m.index)
	if err != nil {
		return err
	}
	m.told[cpu], m.told[bytes] = per(took, f), (float64(heapInUse())-before)/float64(f.blocks())
	return m.read()
}

// read makes the reader and tells what it finds in the full index.
func (m *exactMeter) read() (err error) {
	if m.reader, err = newIndexReader(m.index, m.plan); err != nil {
		return err
	}
	m.hits("")
	return nil
}

// hits tells what the reader finds now.
func (m *exactMeter) hits(when string) {
	m.told[when+"workers/query"], m.told[when+"blocks/query"] = m.reader.hits()
}

// remove measures the last phase and tells what is found then.
func (m *exactMeter) remove(cpu string) error {
	f, err := m.feed(2)
	if err != nil {
		return err
	}
	took, err := timed(f, m.index)
	if err != nil {
		return err
	}
	m.told[cpu] = per(took, f)
	m.hits("end-")
	return nil
}

func (m *exactMeter) churn() error {
	if err := m.split(); err != nil {
		return err
	}
	if err := m.read(); err != nil {
		return err
	}
	both, err := m.beside("churn-cpu-ns/block")
	if err != nil {
		return err
	}
	m.told["churn-find-p50-us"] = both.took.share(0.5).Seconds() * 1e6
	m.told["churn-find-p99.9-us"] = both.took.share(0.999).Seconds() * 1e6
	m.told["churn-find-worst-us"] = both.took.worst.Seconds() * 1e6
	m.hits("end-")
	return m.clear()
}

// split fills the index by two writers, who have half of the workers each.
func (m *exactMeter) split() error {
	var halves [2]*indexFeed
	for i := range halves {
		var err error
		if halves[i], err = newIndexFeed(m.plan, 0, func(worker int) bool { return worker%2 == i }); err != nil {
			return err
		}
	}
	var errs [2]error
	var writers sync.WaitGroup
	cpu, clock := processTime(), time.Now()
	for i, f := range halves {
		writers.Go(func() { errs[i] = f.apply(m.index) })
	}
	writers.Wait()
	took, all := processTime()-cpu, float64(halves[0].blocks()+halves[1].blocks())
	m.told["split-store-wall-ns/block"] = float64(time.Since(clock).Nanoseconds()) / all
	m.told["split-store-cpu-ns/block"] = float64(took.Nanoseconds()) / all
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// clear empties some workers one by one, then as many beside a reader.
func (m *exactMeter) clear() error {
	n := clearedWorkers(m.plan.workers())
	empty := func(from int) func() error {
		return func() error {
			for worker := from; worker < from+n; worker++ {
				if got := m.index.Apply(workerID(worker), []kvcache.Event{{Kind: kvcache.Cleared}}); got.Cleared != 1 {
					return fmt.Errorf("clear worker %d: %+v", worker, got)
				}
			}
			return nil
		}
	}
	begun := processTime()
	if err := empty(0)(); err != nil {
		return err
	}
	m.told["clear-cpu-us"] = (processTime() - begun).Seconds() * 1e6 / float64(n)
	both, err := m.reader.beside(empty(n))
	m.told["clear-find-worst-us"] = both.took.worst.Seconds() * 1e6
	return err
}

// clearedWorkers is how many of a fleet are emptied alone, and then beside a
// reader.
func clearedWorkers(workers int) int { return max(1, min(8, workers/2)) }

func (m *exactMeter) feed(phase int) (*indexFeed, error) {
	return newIndexFeed(m.plan, phase, func(int) bool { return true })
}

// timed applies a feed in the process's CPU time.
func timed(f *indexFeed, x indexer.Feed) (time.Duration, error) {
	begun := processTime()
	err := f.apply(x)
	return processTime() - begun, err
}

// per is a feed's time in nanoseconds for each of its blocks.
func per(took time.Duration, f *indexFeed) float64 {
	return float64(took.Nanoseconds()) / float64(f.blocks())
}

// heapInUse is what the heap's spans with something in them take, when all that
// is not needed is gone.
func heapInUse() uint64 {
	runtime.GC()
	runtime.GC() // pools and finalizers need the second
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse
}
