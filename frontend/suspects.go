package frontend

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/routerd/routerd/fleet"
)

// How long a worker that failed on the network is left out: doubled with each
// failure in a row.
const (
	suspectFirst = time.Second
	suspectMost  = 30 * time.Second
)

// suspects are the workers that failed on the network and have not answered
// since. They are left out while others are there; the time bounds it, and an
// answer ends it. Safe for concurrent use.
type suspects struct {
	count atomic.Int64 // of workers: most of the time 0

	mu      sync.Mutex // guards workers
	workers map[fleet.WorkerID]suspicion
}

type suspicion struct {
	until time.Time
	wait  time.Duration
}

func (s *suspects) failed(id fleet.WorkerID) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.workers == nil {
		s.workers = map[fleet.WorkerID]suspicion{}
	}
	was := s.workers[id]
	if now.Before(was.until) {
		return // requests that were under way together fail together
	}
	wait := min(max(2*was.wait, suspectFirst), suspectMost)
	s.workers[id] = suspicion{until: now.Add(wait), wait: wait}
	for other, w := range s.workers {
		if now.Sub(w.until) > 10*suspectMost { // withdrawn long ago
			delete(s.workers, other)
		}
	}
	s.count.Store(int64(len(s.workers)))
}

func (s *suspects) answered(id fleet.WorkerID) {
	if s.count.Load() == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.workers, id)
	s.count.Store(int64(len(s.workers)))
}

// appendTo adds the workers to leave out now.
func (s *suspects) appendTo(list []fleet.Worker) []fleet.Worker {
	if s.count.Load() == 0 {
		return list
	}
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, w := range s.workers {
		if now.Before(w.until) {
			list = append(list, fleet.Worker{ID: id})
		}
	}
	return list
}
