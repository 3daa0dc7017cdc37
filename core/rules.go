package core

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/fleet"
)

// maxClasses bounds how many request classes a partition remembers the policy
// of.
const maxClasses = 256

// ruling is which policy decides for a partition, as the rules were when it was
// made: another set of rules makes another ruling. Safe for concurrent use.
type ruling struct {
	handle  *policy.Handle
	classes sync.Map // class → *policy.Handle
	count   atomic.Int64
}

// ResolvePolicies asks the policy source again for every partition and every
// class that a partition remembers: for after its rules have changed. Each
// partition changes at once and whole; a request under way keeps the policy that
// it began with. On an error every partition keeps what it had. Partitions that
// are being prepared meanwhile get the new rules too. Calls wait for each other.
func (c *SelectionCore) ResolvePolicies() error {
	c.resolving.Lock()
	defer c.resolving.Unlock()
	c.members.Lock()
	c.rules++ // whoever prepares a partition right now asks again
	partitions := c.allPartitions()
	c.members.Unlock()
	next := make([]*ruling, len(partitions))
	for i, p := range partitions {
		r, err := c.ruleAgain(p)
		if err != nil {
			return err
		}
		next[i] = r
	}
	for i, p := range partitions {
		p.ruling.Store(next[i])
	}
	return nil
}

// allPartitions are those that are visible and those that are only prepared.
// members must be held.
func (c *SelectionCore) allPartitions() []*Partition {
	visible := c.directory.Load().partitions
	all := make([]*Partition, 0, len(visible)+len(c.prepared))
	for _, p := range visible {
		all = append(all, p)
	}
	for _, p := range c.prepared {
		all = append(all, p)
	}
	return all
}

// rule asks the source for a partition's policy.
func (c *SelectionCore) rule(key fleet.PartitionKey) (*ruling, error) {
	handle, err := c.policies.Resolve(key, "")
	if err != nil {
		return nil, fmt.Errorf("resolve policy for %s: %w", key, err)
	}
	return &ruling{handle: handle}, nil
}

// ruleAgain is rule for a partition that remembers classes.
func (c *SelectionCore) ruleAgain(p *Partition) (next *ruling, err error) {
	if next, err = c.rule(p.key); err != nil {
		return nil, err
	}
	p.ruling.Load().classes.Range(func(class, _ any) bool {
		name, _ := class.(string)
		_, err = p.classHandle(next, name)
		return err == nil
	})
	return next, err
}

// classHandle finds the policy of a class. Classes come from callers, so that
// only so many are remembered.
func (p *Partition) classHandle(r *ruling, class string) (*policy.Handle, error) {
	if class == "" {
		return r.handle, nil
	}
	known, _ := r.classes.Load(class)
	if h, ok := known.(*policy.Handle); ok {
		return h, nil
	}
	h, err := p.core.policies.Resolve(p.key, class)
	if err != nil {
		return nil, fmt.Errorf("resolve policy for %s, class %q: %w", p.key, clip(class, 80), err)
	}
	if r.count.Add(1) <= maxClasses {
		r.classes.Store(class, h)
	}
	return h, nil
}
