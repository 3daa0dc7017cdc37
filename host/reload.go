package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"github.com/routerd/routerd/core/policy"
)

// PreparedConfig is a configuration of policies that is whole and good, its
// seeds made, and not in force yet. Whoever prepared it calls Publish or
// Discard, once; of further calls Publish fails and Discard does nothing. Safe
// for concurrent use.
type PreparedConfig struct {
	s        *PolicySource
	routing  *routing
	guardOff bool
	all      map[string]policy.Spec // the seeds of the configuration
	seeds    []*candidate           // those to activate, by name
	drifted  []string               // those that are not, by name

	mu   sync.Mutex // guards done
	done bool
}

var (
	errSourceClosed = errors.New("the policies are closed")
	errConfigDone   = errors.New("publish configuration of policies: it was published or discarded before")
)

// PrepareConfig validates a configuration against what exists and makes the
// revisions of its seeds: of those whose name is new or whose specification is
// not the last seed applied, unless the API set the active revision. Nothing is
// to be seen of it before Publish. Dir and what else only opening looks at are
// ignored. An error names the key.
func (s *PolicySource) PrepareConfig(ctx context.Context, cfg PolicyConfig) (*PreparedConfig, error) {
	p := &PreparedConfig{s: s, routing: routingOf(cfg), guardOff: cfg.GuardOff, all: maps.Clone(cfg.Seeds)}
	for _, name := range slices.Sorted(maps.Keys(cfg.Seeds)) {
		wanted, drifted := s.wants(name, cfg.Seeds[name])
		if drifted {
			p.drifted = append(p.drifted, name)
		}
		if !wanted {
			continue
		}
		c, err := s.prepare(ctx, name, cfg.Seeds[name], byConfig)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("policies.%s: %w", name, err), p.Discard())
		}
		p.seeds = append(p.seeds, c)
	}
	s.mu.Lock()
	err := p.routing.check(p.names())
	s.mu.Unlock()
	if err != nil {
		return nil, errors.Join(err, p.Discard())
	}
	return p, nil
}

// wants tells whether a seed is to be applied, and whether it is not though the
// active revision is another specification.
func (s *PolicySource) wants(name string, spec policy.Spec) (wanted, drifted bool) {
	digest := specDigest(spec)
	s.mu.Lock()
	n := s.policies[name]
	changed := n == nil || n.history.Seed != digest
	wanted = n == nil || n.takesSeed(digest)
	drifted = !wanted && n.history.differs(digest)
	s.mu.Unlock()
	if changed && !wanted {
		s.log.Warn("policy differs from the configuration: the API set it", slog.String("policy", name))
	}
	return wanted, drifted
}

// configured is the digest of the seed in the configuration in force; empty for
// none. s.mu is held.
func (s *PolicySource) configured(name string) string {
	seed, ok := s.seeds[name]
	if !ok {
		return ""
	}
	return specDigest(seed)
}

// takesSeed tells whether a seed with this digest is news for the policy, and
// whether its active revision is the configuration's: nobody else activated it,
// or it is what the configuration says or said, whoever activated that.
func (n *named) takesSeed(digest string) bool {
	h := &n.history
	if h.Seed == digest {
		return false
	}
	if by := h.ActivatedBy; by == "" || by == byConfig || by == byBuiltin {
		return true
	}
	el := h.find(h.Active)
	if el == nil {
		return false
	}
	given := specDigest(el.Given)
	return given == digest || given == h.Seed
}

// Drifted lists the seeds of the prepared configuration that it leaves alone,
// since the API activated something else.
func (p *PreparedConfig) Drifted() []string { return p.drifted }

// names are the policies that will have an active revision. s.mu is held.
func (p *PreparedConfig) names() []string {
	names := slices.Collect(maps.Keys(*p.s.handles.Load()))
	for _, c := range p.seeds {
		names = append(names, c.name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// take makes the caller the one who ends p; false when it has ended.
func (p *PreparedConfig) take() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	taken := !p.done
	p.done = true
	return taken
}

// Discard gives back what was prepared. Everything is as before PrepareConfig.
func (p *PreparedConfig) Discard() error {
	if !p.take() {
		return nil
	}
	return p.giveBack()
}

func (p *PreparedConfig) giveBack() error {
	var errs []error
	for _, c := range p.seeds {
		errs = append(errs, c.discard())
	}
	return errors.Join(errs...)
}

// Publish puts the configuration in force: the seeds' revisions are written
// down and activated, the rules and the guard's setting are swapped. A seed
// whose policy the API activated meanwhile is left out. An error leaves
// everything as it was.
func (p *PreparedConfig) Publish() error {
	if !p.take() {
		return errConfigDone
	}
	s := p.s
	s.mu.Lock()
	defer s.mu.Unlock()
	err := p.routing.check(p.names())
	if s.closed {
		err = fmt.Errorf("publish configuration of policies: %w", errSourceClosed)
	}
	if err != nil {
		return errors.Join(err, p.giveBack())
	}
	changes, err := p.write()
	if err != nil {
		return errors.Join(err, p.giveBack())
	}
	for _, c := range changes {
		err = errors.Join(err, s.applySeed(c))
	}
	s.seeds = p.all
	s.routing.Store(p.routing)
	s.setGuard(!p.guardOff)
	return errors.Join(err, p.giveBack()) // what was not needed after all
}

// seedChange is what a seed does to its policy.
type seedChange struct {
	*candidate
	n       *named
	next    history
	number  int
	added   bool // the seed made the revision
	dropped []historyElement
}

// write plans what the seeds change and writes it down; after a failure the
// files are as before. s.mu is held.
func (p *PreparedConfig) write() ([]seedChange, error) {
	var changes []seedChange
	for _, c := range p.seeds {
		change, ok := p.s.plan(c)
		if !ok {
			continue
		}
		if err := change.next.save(p.s.dir); err != nil {
			for _, earlier := range changes {
				err = errors.Join(err, earlier.n.history.restore(p.s.dir))
			}
			return nil, err
		}
		changes = append(changes, change)
	}
	return changes, nil
}

// plan tells what a seed changes; false for nothing. s.mu is held.
func (s *PolicySource) plan(c *candidate) (seedChange, bool) {
	n := s.policies[c.name]
	if n == nil {
		n = &named{history: history{Name: c.name, Next: 1}}
	}
	digest := ""
	if c.el.By == byConfig {
		digest = specDigest(c.el.Given)
		if !n.takesSeed(digest) {
			return seedChange{}, false
		}
	}
	out := seedChange{candidate: c, n: n, next: n.history.copied()}
	if el := out.next.same(c.el.Spec); el != nil {
		out.number = el.Number
	} else {
		out.number, out.dropped = out.next.add(c.el)
		out.added = true
	}
	at := now()
	out.next.note(Change{At: at, Who: c.el.By, What: whatSeed, Revision: out.number, Previous: n.history.Active})
	out.next.activate(out.number, c.el.By, at)
	if n.problem != "" {
		out.next.Trip = nil // it is made anew
	}
	if r := out.next.Canary; r != nil && r.Revision == out.number {
		out.next.Canary = nil
	}
	if r := out.next.Shadow; r != nil && r.Revision == out.number {
		out.next.Shadow = nil
	}
	out.next.Seed = digest
	return out, true
}

// applySeed makes a seed's revision the active one. s.mu is held.
func (s *PolicySource) applySeed(c seedChange) error {
	n := c.n
	n.history = c.next
	s.policies[c.name] = n
	if !c.added {
		s.stages.unpin(c.pins, owner(c.name))
	}
	c.pins = nil
	s.drop(n, c.dropped)
	if n.active != nil && n.active.Number() == c.number && n.problem == "" {
		return nil // it is in force already
	}
	err := errors.Join(s.publish(n, c.revision(c.number)), s.settle(n))
	s.log.Info("policy activated", slog.String("policy", c.name), slog.Int("revision", c.number),
		slog.Int("previous", c.next.Previous), slog.String("by", c.el.By))
	return err
}

// setGuard turns the guard on or off. Turned off, what has tripped gets another
// chance. s.mu is held.
func (s *PolicySource) setGuard(on bool) {
	s.guardOff.Store(!on)
	if on {
		return
	}
	for _, n := range s.policies {
		if n.active == nil {
			continue
		}
		n.active.Retry()
		if n.history.Trip == nil || n.distrusted {
			continue
		}
		next := n.history.copied()
		next.Trip = nil
		next.note(Change{Who: byConfig, What: whatRetry, Revision: next.Active, Why: "plugins.guard is off"})
		if err := s.commit(n, next); err != nil {
			s.log.Error("a policy's retry could not be written down", slog.String("policy", n.history.Name), slog.Any("err", err))
		}
	}
}

// builtinDefault is the policy that always exists, until it is replaced.
func builtinDefault() policy.Spec {
	return policy.Spec{Scorers: []policy.ScorerSpec{{StageSpec: policy.StageSpec{Use: policy.DefaultScorer}}}}
}
