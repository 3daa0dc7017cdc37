package indextest

import (
	"slices"
	"time"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/kvcache"
)

// stamp is when a block was last recorded: the number of the decision, and its time.
type stamp struct {
	number int
	at     time.Time
}

// stamps is the model of an index that is fed by decisions alone: for each worker and path, when it was recorded.
type stamps struct {
	rules rules
	last  int
	paths map[fleet.Worker]map[string]stamp
}

func newStamps(r rules) *stamps {
	return &stamps{rules: r, paths: map[fleet.Worker]map[string]stamp{}}
}

func (s *stamps) record(w fleet.Worker, path string) {
	s.expire()
	if s.paths[w] == nil {
		s.paths[w] = map[string]stamp{}
	}
	s.last++
	for n := 8; n <= len(path); n += 8 {
		s.paths[w][path[:n]] = stamp{s.last, time.Now()}
	}
	for s.rules.maxBlocks > 0 && s.blocks() > s.rules.maxBlocks {
		s.evict()
	}
}

func (s *stamps) blocks() (n int) {
	for _, paths := range s.paths {
		n += len(paths)
	}
	return n
}

// evict takes out the block that was recorded the longest ago, of those of one decision the last.
func (s *stamps) evict() {
	var of fleet.Worker
	first, number := "", 0
	for w, paths := range s.paths {
		for p, at := range paths {
			if first == "" || at.number < number || at.number == number && len(p) > len(first) {
				of, first, number = w, p, at.number
			}
		}
	}
	delete(s.paths[of], first)
}

func (s *stamps) expire() {
	if s.rules.ttl == 0 {
		return
	}
	for _, paths := range s.paths {
		for p, at := range paths {
			if time.Since(at.at) >= s.rules.ttl {
				delete(paths, p)
			}
		}
	}
}

// reach is how much of a path a worker holds.
func (s *stamps) reach(w fleet.Worker, path string) uint32 {
	s.expire()
	n := 8
	for n <= len(path) {
		if _, ok := s.paths[w][path[:n]]; !ok {
			break
		}
		n += 8
	}
	return uint32(n/8) - 1
}

// predicted is one decision that no event has confirmed.
type predicted struct {
	worker fleet.Worker
	path   string
	at     time.Time
}

// predictions is the model of decisions beside events, each for itself.
type predictions struct {
	rules rules
	list  []predicted
}

func (p *predictions) record(w fleet.Worker, path string) {
	p.drop(func(d predicted) bool { return d.worker == w && d.path == path })
	p.list = append(p.list, predicted{w, path, time.Now()})
}

func (p *predictions) drop(over func(predicted) bool) { p.list = slices.DeleteFunc(p.list, over) }

// reach is the most that a prompt shares with a prediction.
func (p *predictions) reach(w fleet.Worker, path string) (most uint32) {
	p.drop(func(d predicted) bool { return time.Since(d.at) >= p.rules.ttl })
	for _, d := range p.list {
		n := 0
		for n < min(len(path), len(d.path)) && path[n:n+8] == d.path[n:n+8] {
			n += 8
		}
		if d.worker == w {
			most = max(most, uint32(n/8))
		}
	}
	return most
}

// confirm drops the predictions that end with a stored block and are held on the device.
func (p *predictions) confirm(w fleet.Worker, stored []kvcache.BlockHash, held func(path string) bool) {
	p.drop(func(d predicted) bool {
		return d.worker == w && slices.ContainsFunc(stored, func(b kvcache.BlockHash) bool {
			return d.path[len(d.path)-8:] == pathOf(b)
		}) && held(d.path)
	})
}
