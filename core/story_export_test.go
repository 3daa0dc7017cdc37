package core

import (
	"time"

	"github.com/routerd/routerd/core/affinity"
	"github.com/routerd/routerd/fleet"
)

// Standing is what a partition holds beside its loads.
type Standing struct {
	Classes  []ClassStanding // who waits, held ones included
	Waiting  int
	Granted  int
	Sessions affinity.Stats
}

// ClassStanding is what waits in one class.
type ClassStanding struct {
	Name     string
	Requests int
	Tokens   int64
}

// StandingOf is what the partition of a key holds now; zero when there is none.
func (c *SelectionCore) StandingOf(key fleet.PartitionKey) Standing {
	p := c.directory.Load().partitions[key.Normalised()]
	if p == nil {
		return Standing{}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	out := Standing{Waiting: p.queue.Len(), Sessions: p.sessions.Stats()}
	p.queue.Waiting(func(class string, requests int, tokens int64) {
		out.Classes = append(out.Classes, ClassStanding{class, requests, tokens})
	})
	for _, n := range p.grants {
		out.Granted += n
	}
	return out
}

// BoundTo is the worker that a session is bound to.
func (c *SelectionCore) BoundTo(key fleet.PartitionKey, session string) (fleet.Worker, bool) {
	p := c.directory.Load().partitions[key.Normalised()]
	if p == nil {
		return fleet.Worker{}, false
	}
	target, ok := p.sessions.Lookup(session, time.Now())
	return target.Worker, ok
}
