package scrape

import (
	"bufio"
	"context"
	"io"
	"net"
	"time"

	"github.com/routerd/routerd/core/load"
	"github.com/routerd/routerd/fleet"
)

// SetDial has the scraper connect in another way; before Run.
func (s *Scraper) SetDial(dial func(ctx context.Context, address string) (net.Conn, error)) {
	s.dial = dial
}

// Known makes the scraper know workers without Run.
func (s *Scraper) Known(records ...fleet.Record) {
	t := table{}
	for _, r := range records {
		t[r.ID] = newTarget(r)
		t[r.ID].page.Store(int64(r.BlockSize))
	}
	s.table.Store(&t)
}

// Counted is the number of values refused and of samples of strange ranks.
func (s *Scraper) Counted() (refused, strange, pushed uint64) {
	return s.counters.refused.Load(), s.counters.strange.Load(), s.counters.pushed.Load()
}

// Asked is how many questions for metrics ended with a result, and for adapters.
func (s *Scraper) Asked(name string) (metrics, models uint64) {
	for r := range results {
		if r.String() == name {
			return s.counters.asked[r].Load(), s.counters.models[r].Load()
		}
	}
	return 0, 0
}

// Read is what metrics say of a worker's ranks.
type Read struct {
	Reports          map[uint32]load.Report
	Lora             []string
	Refused, Strange uint64
}

// ReadMetrics reads the metrics of a worker.
func ReadMetrics(metrics io.Reader, r fleet.Record, at time.Time) (Read, error) {
	got := newReading(uint32(r.DPStart), r.DPSize)
	if err := metricsIn(bufio.NewReaderSize(metrics, bufferSize), got); err != nil {
		return Read{}, err
	}
	got.settle()
	page := max(int64(got.page), int64(r.BlockSize))
	read := Read{Reports: map[uint32]load.Report{}, Lora: got.lora.names, Refused: got.refused, Strange: got.strange}
	for i, v := range got.ranks {
		if report, ok := v.report(at, page); ok {
			read.Reports[got.first+uint32(i)] = report
		}
	}
	return read, nil
}

// Spread is spread.
var Spread = spread

// Pause is pause.
var Pause = pause

// AgeOf is how old the newest report of a rank is, also when it is too old for
// Report; ok is false when there never was one.
func (s *Scraper) AgeOf(w fleet.Worker) (age time.Duration, ok bool) {
	r := s.table.Load().report(w)
	if r == nil {
		return 0, false
	}
	return max(time.Since(r.At), 0), true
}
