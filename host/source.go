package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/host/store"
	"github.com/routerd/routerd/plugins/abi"
)

// Errors of PolicySource that callers branch on.
var (
	// ErrNoPolicy is a policy that does not exist.
	ErrNoPolicy = errors.New("no such policy")
	// ErrNoRevision is a revision that is not kept.
	ErrNoRevision = errors.New("no such revision")
	// ErrNoHistory is a rollback with nothing to go back to.
	ErrNoHistory = errors.New("no_history: no earlier revision was active")
)

// Who sets a policy without the API.
const (
	byBuiltin = "built-in"
	byConfig  = "config"
)

// PolicyConfig says where policies are kept and which one a request gets.
type PolicyConfig struct {
	Dir      string                 // one file a policy
	Rules    []Rule                 // the first match wins
	Models   map[string]string      // model → policy where no rule matches
	Default  string                 // where nothing else names one; "default" when empty
	Seeds    map[string]policy.Spec // policies of the configuration
	GuardOff bool                   // faults are answered and counted but never trip
	// ProbeInterval is how often what has tripped is probed; 30 s when 0. Only
	// opening looks at it.
	ProbeInterval time.Duration
	// Removed hears of each policy that is removed; it must not block. Nil for
	// nobody. Only opening looks at it.
	Removed func(policy string)
}

// PolicySource keeps named policies with their revisions and resolves rules to
// handles. Changes of one policy are serial; deciding goes on meanwhile. Safe
// for concurrent use.
type PolicySource struct {
	rt     *Runtime
	stages *Stages
	dir    string
	log    *slog.Logger

	// handles is replaced as a whole when a policy gets its first active
	// revision, so that Resolve waits for nothing.
	handles  atomic.Pointer[map[string]*policy.Handle]
	routing  atomic.Pointer[routing]
	guardOff atomic.Bool
	desk     *desk // where shadows get their work
	trips    trips // that are not written down yet
	probing  time.Duration
	removed  func(policy string) // never nil

	mu       sync.Mutex // guards all below, what policies hold, and their files
	policies map[string]*named
	seeds    map[string]policy.Spec // of the configuration in force
	closed   bool
}

// named is one policy.
type named struct {
	history history
	active  *policy.Revision // nil before the first activation
	ready   *policy.Revision // the last one put, made and not yet in use; or nil
	canary  *policy.Revision // nil for none
	shadow  *shadow          // nil for none
	watch   *watch           // nil before the first activation
	problem string           // why the fallback stands in for the active revision

	distrusted bool // it stands in since an audit failed
}

// OpenPolicySource reads the policies that are kept, makes the active ones
// again and applies the configuration's seeds. A kept policy whose module no
// longer loads runs its fallback and says so; a seed that cannot be made is an
// error.
func OpenPolicySource(ctx context.Context, rt *Runtime, modules *store.Store, cfg PolicyConfig, log *slog.Logger) (*PolicySource, error) {
	s := &PolicySource{rt: rt, stages: NewStages(rt, modules), dir: cfg.Dir, log: log, policies: map[string]*named{}, desk: newDesk(), probing: cfg.ProbeInterval}
	s.trips.wake = make(chan struct{}, 1)
	if s.removed = cfg.Removed; s.removed == nil {
		s.removed = func(string) {}
	}
	if s.probing <= 0 {
		s.probing = probeInterval
	}
	s.handles.Store(&map[string]*policy.Handle{})
	s.guardOff.Store(cfg.GuardOff)
	kept, err := loadHistories(cfg.Dir)
	if err != nil {
		return nil, err
	}
	for _, h := range kept {
		if err := s.restore(ctx, h); err != nil {
			return nil, errors.Join(fmt.Errorf("open policy %q: %w", h.Name, err), s.Close())
		}
	}
	if err := modules.Sweep(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	rt.sweepCompiled(modules.Has)
	if err := s.configure(ctx, cfg); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// configure puts the first configuration in force, over the policy that always
// exists.
func (s *PolicySource) configure(ctx context.Context, cfg PolicyConfig) error {
	if s.policies[fleet.DefaultName] == nil {
		m, err := s.prepare(ctx, fleet.DefaultName, builtinDefault(), byBuiltin)
		if err != nil {
			return err
		}
		if err := (&PreparedConfig{s: s, routing: &routing{def: fleet.DefaultName}, guardOff: cfg.GuardOff, seeds: []*candidate{m}}).Publish(); err != nil {
			return err
		}
	}
	p, err := s.PrepareConfig(ctx, cfg)
	if err != nil {
		return err
	}
	return p.Publish()
}

// restore makes a kept policy again.
func (s *PolicySource) restore(ctx context.Context, h history) error {
	n := &named{history: h}
	s.policies[h.Name] = n
	for i := range h.Revisions {
		for _, d := range pinsOf(h.Revisions[i].Spec) {
			// Bytes that are gone are noticed when the revision is made.
			_ = s.stages.store.Pin(d, owner(h.Name))
		}
	}
	if h.Active == 0 {
		return nil
	}
	if err := s.restoreActive(ctx, n); err != nil {
		return err
	}
	return s.restoreRollout(ctx, n)
}

// restoreActive makes the active revision again, or what stands in for it.
func (s *PolicySource) restoreActive(ctx context.Context, n *named) error {
	h := n.history
	el := h.find(h.Active)
	if h.Trip != nil && h.Trip.Distrusted {
		return s.restoreDistrusted(ctx, n, el)
	}
	rev, err := s.build(ctx, h.Name, el)
	if err == nil {
		if h.Trip != nil {
			rev.Trip() // until a probe or an operator gives it another chance
			s.log.Warn("policy starts tripped: its fallback decides", slog.String("policy", h.Name),
				slog.Int("revision", h.Active), slog.String("why", h.Trip.Why))
		}
		return s.publish(n, rev)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	s.log.Error("policy runs its fallback: the active revision cannot be made", slog.String("policy", h.Name),
		slog.Int("revision", h.Active), slog.Any("err", err))
	problem := clip(err.Error(), maxWhy)
	if rev, err = s.standIn(ctx, h.Name, el); err != nil {
		return err
	}
	if err := s.publish(n, rev); err != nil {
		return err
	}
	n.problem = problem
	return nil
}

// restoreDistrusted lets the fallback stand in again for an active revision with
// a module that was found not to be deterministic.
func (s *PolicySource) restoreDistrusted(ctx context.Context, n *named, el *historyElement) error {
	s.log.Error("policy runs its fallback: a module is not deterministic", slog.String("policy", n.history.Name),
		slog.Int("revision", el.Number), slog.String("why", n.history.Trip.Why))
	rev, err := s.standIn(ctx, n.history.Name, el)
	if err != nil {
		return err
	}
	if err := s.publish(n, rev); err != nil {
		return err
	}
	n.problem, n.distrusted = n.history.Trip.Why, true
	return nil
}

// build compiles a kept revision.
func (s *PolicySource) build(ctx context.Context, name string, el *historyElement) (*policy.Revision, error) {
	p, digests, heard, err := s.compile(ctx, el.Spec)
	if err != nil {
		return nil, err
	}
	rev := s.revision(name, el.Number, el.Spec, p, digests)
	heard(rev)
	return rev, nil
}

// standIn is the fallback under a revision's number.
func (s *PolicySource) standIn(ctx context.Context, name string, el *historyElement) (*policy.Revision, error) {
	spec := policy.Spec{Scorers: []policy.ScorerSpec{{StageSpec: policy.StageSpec{Use: el.Spec.Fallback}}}, Fallback: el.Spec.Fallback}
	p, _, err := policy.Compile(ctx, spec, nil)
	if err != nil {
		return nil, err
	}
	return s.revision(name, el.Number, el.Spec, p, el.Digests), nil
}

func (s *PolicySource) revision(name string, number int, spec policy.Spec, p *policy.Pipeline, digests []string) *policy.Revision {
	return policy.NewRevision(name, number, spec, p, digests, policy.OnTrip(s.tripped), policy.GuardSwitch(&s.guardOff))
}

// publish makes rev the policy's active revision. s.mu is held, or s is not yet
// shared.
func (s *PolicySource) publish(n *named, rev *policy.Revision) error {
	old := *s.handles.Load()
	h, ok := old[n.history.Name]
	if ok {
		if err := h.Publish(rev); err != nil {
			return err
		}
	} else {
		var err error
		if h, err = policy.NewHandle(rev); err != nil {
			return err
		}
		n.watch = newWatch(s.desk)
		h.SetObservers(n.watch)
		handles := maps.Clone(old)
		handles[n.history.Name] = h
		s.handles.Store(&handles)
	}
	if n.active != nil && n.active != rev {
		n.active.Retire()
	}
	n.problem, n.distrusted = "", false
	if n.canary == rev {
		n.canary = nil // publishing ended it
	}
	n.active = rev
	n.watch.active.Store(rev)
	s.keepColumns(n)
	s.rt.metrics.activations.Inc()
	return nil
}

// keepColumns tells the handle what decision records must hold.
func (s *PolicySource) keepColumns(n *named) {
	h, ok := (*s.handles.Load())[n.history.Name]
	if !ok {
		return
	}
	var set policy.ColumnSet
	for i := range n.history.Revisions {
		for _, c := range n.history.Revisions[i].Columns {
			set.Add(c)
		}
	}
	if n.shadow != nil {
		set.AddStd(abi.ColLoadActiveRequests) // its report tells of load
	}
	h.Keep(set)
}

// Close retires every revision; the stages close when the last calls on them
// have ended. Handles must not be used any more.
func (s *PolicySource) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	var revs []*policy.Revision
	var errs []error
	for _, n := range s.policies {
		revs = append(revs, n.ready, n.canary, n.active)
		errs = append(errs, s.dropCanary(n), s.dropShadow(n))
	}
	revs = slices.DeleteFunc(revs, func(r *policy.Revision) bool { return r == nil })
	for _, r := range revs {
		r.Retire()
	}
	handles := *s.handles.Load()
	s.mu.Unlock()
	return errors.Join(append(errs, s.closeHandles(handles, revs))...)
}

// closeHandles takes the revisions out of the handles by publishing an empty
// built-in one that holds nothing, and collects what closing them said.
func (s *PolicySource) closeHandles(handles map[string]*policy.Handle, revs []*policy.Revision) error {
	var errs []error
	for name, h := range handles {
		spec := builtinDefault()
		p, _, err := policy.Compile(context.Background(), spec, nil)
		if err != nil {
			return err
		}
		last := policy.NewRevision(name, 0, spec, p, nil)
		errs = append(errs, h.Publish(last))
		last.Retire()
	}
	for _, r := range revs {
		errs = append(errs, r.CloseErr())
	}
	return errors.Join(errs...)
}

// pinsOf lists the digests that a pinned spec names, one for each module stage.
func pinsOf(spec policy.Spec) []string {
	var out []string
	spec.EachStage(func(_ string, _ abi.Kind, st *policy.StageSpec) {
		if _, d, ok := strings.Cut(st.Use, "@"); ok && strings.HasPrefix(st.Use, modulePrefix) {
			out = append(out, d)
		}
	})
	return out
}

func owner(name string) string { return "policy " + strconv.Quote(name) }

// now is when a change is made, as it is kept.
func now() time.Time { return time.Now().UTC().Truncate(time.Millisecond) }
