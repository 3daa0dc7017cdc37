package host

import (
	"context"
	"errors"
	"fmt"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/host/store"
)

// candidate is a revision in the making: a specification with its modules
// pinned, compiled, that has no number yet.
type candidate struct {
	s        *PolicySource
	name     string
	el       historyElement
	why      string   // it is put
	pins     []string // one for each module stage
	pipeline *policy.Pipeline
	heard    func(*policy.Revision) // with the revision that is made
}

// pin makes a candidate whose modules stay in the store; it is not compiled.
func (s *PolicySource) pin(name string, spec policy.Spec, by string) (*candidate, error) {
	if err := store.CheckName(name); err != nil {
		return nil, err
	}
	given, err := spec.Normalised()
	if err != nil {
		return nil, err
	}
	pinned, pins, err := s.stages.pin(given, owner(name))
	if err != nil {
		return nil, err
	}
	return &candidate{s: s, name: name, pins: pins, el: historyElement{Spec: pinned, Given: given, By: by, At: now()}}, nil
}

// prepare pins and compiles.
func (s *PolicySource) prepare(ctx context.Context, name string, spec policy.Spec, by string) (*candidate, error) {
	c, err := s.pin(name, spec, by)
	if err != nil {
		return nil, err
	}
	if err := c.compile(ctx); err != nil {
		return nil, errors.Join(err, c.discard())
	}
	return c, nil
}

func (c *candidate) compile(ctx context.Context) error {
	p, digests, heard, err := c.s.compile(ctx, c.el.Spec)
	if err != nil {
		return err
	}
	c.heard, c.pipeline, c.el.Digests, c.el.Columns = heard, p, digests, columnNames(p.Columns())
	return nil
}

// discard gives up what the candidate holds.
func (c *candidate) discard() error {
	c.s.stages.unpin(c.pins, owner(c.name))
	if c.pipeline == nil {
		return nil
	}
	rev := policy.NewRevision(c.name, 0, c.el.Spec, c.pipeline, nil)
	c.pipeline = nil
	rev.Retire() // closes the stages
	return rev.CloseErr()
}

// revision makes the candidate the policy's revision of a number. The pins are
// the history's from now on.
func (c *candidate) revision(number int) *policy.Revision {
	p := c.pipeline
	c.pipeline = nil
	rev := c.s.revision(c.name, number, c.el.Spec, p, c.el.Digests)
	c.heard(rev)
	return rev
}

// Put makes a revision of a policy and keeps it, ready to be activated: every
// module is pinned, checked, compiled, set up and self-tested. created is false
// when a kept revision has the same spec already; then it is returned. A
// failure leaves everything as it was.
func (s *PolicySource) Put(ctx context.Context, name string, spec policy.Spec, by string, more ...Because) (info RevisionInfo, created bool, err error) {
	c, err := s.pin(name, spec, by)
	if err != nil {
		return RevisionInfo{}, false, err
	}
	c.why = whyOf("", more)
	if info, ok := s.same(c); ok {
		return info, false, c.discard()
	}
	if err := c.compile(ctx); err != nil {
		return RevisionInfo{}, false, errors.Join(err, c.discard())
	}
	info, created, err = s.keep(c)
	if !created {
		err = errors.Join(err, c.discard())
	}
	return info, created, err
}

// same finds a kept revision with the candidate's specification.
func (s *PolicySource) same(c *candidate) (RevisionInfo, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.policies[c.name]
	if n == nil {
		return RevisionInfo{}, false
	}
	el := n.history.same(c.el.Spec)
	if el == nil {
		return RevisionInfo{}, false
	}
	return n.info(el), true
}

// keep gives a compiled candidate its number and writes it down.
func (s *PolicySource) keep(c *candidate) (info RevisionInfo, created bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return RevisionInfo{}, false, fmt.Errorf("put policy %q: %w", c.name, errSourceClosed)
	}
	n := s.policies[c.name]
	if n == nil {
		n = &named{history: history{Name: c.name, Next: 1}}
	}
	if el := n.history.same(c.el.Spec); el != nil { // put twice at once
		return n.info(el), false, nil
	}
	next := n.history.copied()
	number, dropped := next.add(c.el)
	next.note(Change{At: c.el.At, Who: c.el.By, What: whatPut, Revision: number, Why: c.why})
	if err := next.save(s.dir); err != nil {
		return RevisionInfo{}, false, err
	}
	n.history = next
	s.policies[c.name] = n
	if n.ready != nil {
		n.ready.Retire()
	}
	n.ready = c.revision(number)
	s.drop(n, dropped)
	s.keepColumns(n)
	return n.info(n.history.find(number)), true, nil
}

// drop gives up what revisions that are no longer kept hold. s.mu is held.
func (s *PolicySource) drop(n *named, dropped []historyElement) {
	for i := range dropped {
		s.stages.unpin(pinsOf(dropped[i].Spec), owner(n.history.Name))
		if n.ready != nil && n.ready.Number() == dropped[i].Number {
			n.ready.Retire()
			n.ready = nil
		}
	}
}
