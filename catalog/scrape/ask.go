package scrape

import (
	"bufio"
	"context"
	"errors"
	"time"

	"github.com/routerd/routerd/catalog/engine"
)

// errNoLoad is an answer that can be read and says nothing of the load.
var errNoLoad = errors.New("its metrics name no load; is it an engine, and are its metrics on?")

// question is one visit to an engine.
type question struct {
	*member
	page    int64         // tokens of a block by the record; 0 while unknown
	timeout time.Duration // of each answer
}

// answer is how a visit ended.
type answer struct {
	member *member
	began  time.Time
	took   time.Duration
	err    error // of the metrics
}

// visit asks an engine for its metrics, and for its adapters when it is time.
func (s *Scraper) visit(ctx context.Context, q question) answer {
	a := answer{member: q.member, began: time.Now()}
	a.err = s.readLoad(ctx, q, a.began)
	a.took = time.Since(a.began)
	if ctx.Err() != nil {
		return a
	}
	s.counters.asked[resultOf(a.err)].Add(1)
	list := &q.target.adapters
	if r := resultOf(a.err); r == unreachable || r == timedOut || time.Now().Before(list.due) {
		return a
	}
	list.next(time.Now())
	err := s.readAdapters(ctx, q)
	if ctx.Err() == nil {
		s.counters.models[resultOf(err)].Add(1)
	}
	return a
}

// metricsPath is where an engine has its metrics. TensorRT-LLM has others at
// /metrics, which only one reader gets and which are waited for.
func metricsPath(kind string) string {
	if kind == "trtllm" {
		return "/prometheus/metrics"
	}
	return "/metrics"
}

func (s *Scraper) readLoad(ctx context.Context, q question, at time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, q.timeout)
	defer cancel()
	t := q.target
	got := newReading(t.first, len(t.cells))
	size, err := q.line.get(ctx, metricsPath(t.place.engine), &q.scraper.buffers, func(body *bufio.Reader) error {
		return metricsIn(body, got)
	})
	s.counters.bytes.Add(uint64(size))
	if err != nil {
		return err
	}
	got.settle()
	s.counters.refused.Add(got.refused)
	s.counters.strange.Add(got.strange)
	if got.page >= 1 {
		t.page.Store(int64(got.page))
	} else if q.page > 0 {
		t.page.Store(q.page)
	}
	if t.adapters.used(got.lora, t.place.model) {
		s.tellAdapters(t.id)
	}
	return s.takeOver(t, got, at)
}

// takeOver makes reports of what was read.
func (s *Scraper) takeOver(t *target, got *reading, at time.Time) error {
	some := false
	for i, v := range got.ranks {
		if r, ok := v.report(at, t.page.Load()); ok {
			t.cells[i].offer(&r)
			some = true
		}
	}
	if !some {
		return errNoLoad
	}
	return nil
}

func (s *Scraper) readAdapters(ctx context.Context, q question) error {
	ctx, cancel := context.WithTimeout(ctx, q.timeout)
	defer cancel()
	var names []string
	size, err := q.line.get(ctx, "/v1/models", &q.scraper.buffers, func(body *bufio.Reader) (err error) {
		names, err = engine.Adapters(body, q.target.place.model)
		return err
	})
	s.counters.bytes.Add(uint64(size))
	if err != nil {
		return err
	}
	if q.target.adapters.listed(names, time.Now()) {
		s.tellAdapters(q.target.id)
	}
	return nil
}
