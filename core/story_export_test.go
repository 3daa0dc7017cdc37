package core

import (
	"time"

	"github.com/routerd/routerd/fleet"
)

// Granted counts the requests of a partition that may go on and have not booked
// yet.
func (c *SelectionCore) Granted(key fleet.PartitionKey) (n int) {
	p := c.directory.Load().partitions[key.Normalised()]
	if p == nil {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, g := range p.grants {
		n += g
	}
	return n
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
