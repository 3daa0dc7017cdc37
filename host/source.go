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
}

// Rule gives the requests of a model, group and class a policy; an empty field
// matches all.
type Rule struct{ Model, Group, Class, Policy string }

// PolicySource keeps named policies with their revisions and resolves rules to
// handles. Changes of one policy are serial; deciding goes on meanwhile. Safe
// for concurrent use.
type PolicySource struct {
	rt     *Runtime
	stages *Stages
	cfg    PolicyConfig
	log    *slog.Logger

	// handles is replaced as a whole when a policy gets its first active
	// revision, so that Resolve waits for nothing.
	handles atomic.Pointer[map[string]*policy.Handle]

	mu       sync.Mutex // guards policies, what they hold, and their files
	policies map[string]*named
	closed   bool
}

// named is one policy.
type named struct {
	history history
	active  *policy.Revision // nil before the first activation
	ready   *policy.Revision // the last one put, made and not yet active; or nil
	problem string           // why the fallback stands in for the active revision
}

// OpenPolicySource reads the policies that are kept, makes the active ones
// again and applies the configuration's seeds. A kept policy whose module no
// longer loads runs its fallback and says so; a seed that cannot be made is an
// error.
func OpenPolicySource(ctx context.Context, rt *Runtime, modules *store.Store, cfg PolicyConfig, log *slog.Logger) (*PolicySource, error) {
	if cfg.Default == "" {
		cfg.Default = fleet.DefaultName
	}
	s := &PolicySource{rt: rt, stages: NewStages(rt, modules), cfg: cfg, log: log, policies: map[string]*named{}}
	s.handles.Store(&map[string]*policy.Handle{})
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
	if s.policies[fleet.DefaultName] == nil {
		seed := policy.Spec{Scorers: []policy.ScorerSpec{{StageSpec: policy.StageSpec{Use: policy.DefaultScorer}}}}
		if err := s.install(ctx, fleet.DefaultName, seed, byBuiltin); err != nil {
			return nil, errors.Join(err, s.Close())
		}
	}
	for _, name := range slices.Sorted(maps.Keys(cfg.Seeds)) {
		if err := s.seed(ctx, name, cfg.Seeds[name]); err != nil {
			return nil, errors.Join(fmt.Errorf("policies.%s: %w", name, err), s.Close())
		}
	}
	if err := s.checkNames(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// checkNames refuses a configuration that names a policy that nobody has made:
// its requests could not be routed.
func (s *PolicySource) checkNames() error {
	named := map[string]string{"routing.default": s.cfg.Default}
	for i, r := range s.cfg.Rules {
		named[fmt.Sprintf("routing.rules[%d].policy", i)] = r.Policy
	}
	for model, name := range s.cfg.Models {
		named["models."+model+".policy"] = name
	}
	handles := *s.handles.Load()
	for _, field := range slices.Sorted(maps.Keys(named)) {
		if _, ok := handles[named[field]]; !ok {
			return &fleet.FieldError{Field: field, Value: named[field], Allowed: "a policy with an active revision: " + strings.Join(slices.Sorted(maps.Keys(handles)), ", ")}
		}
	}
	return nil
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
	el := h.find(h.Active)
	rev, err := s.build(ctx, h.Name, el)
	if err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		s.log.Error("policy runs its fallback: the active revision cannot be made", slog.String("policy", h.Name),
			slog.Int("revision", h.Active), slog.Any("err", err))
		n.problem = clip(err.Error(), 512)
		if rev, err = s.standIn(ctx, h.Name, el); err != nil {
			return err
		}
	}
	return s.publish(n, rev)
}

// build compiles a kept revision.
func (s *PolicySource) build(ctx context.Context, name string, el *historyElement) (*policy.Revision, error) {
	p, digests, err := policy.Compile(ctx, el.Spec, s.stages)
	if err != nil {
		return nil, err
	}
	return s.revision(name, el.Number, el.Spec, p, digests), nil
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
	if s.cfg.GuardOff {
		return policy.NewRevision(name, number, spec, p, digests, policy.GuardOff())
	}
	return policy.NewRevision(name, number, spec, p, digests)
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
		handles := maps.Clone(old)
		handles[n.history.Name] = h
		s.handles.Store(&handles)
	}
	if n.active != nil && n.active != rev {
		n.active.Retire()
	}
	n.active = rev
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
	h.Keep(set)
}

// seed applies a policy of the configuration: a new name, or another spec than
// the last seed applied, makes a revision and activates it, unless the API set
// the active one.
func (s *PolicySource) seed(ctx context.Context, name string, spec policy.Spec) error {
	digest := specDigest(spec)
	if n := s.policies[name]; n != nil {
		if n.history.Seed == digest {
			return nil
		}
		if by := n.history.ActivatedBy; by != byConfig && by != byBuiltin && by != "" {
			s.log.Warn("policy differs from the configuration: the API set it", slog.String("policy", name))
			return nil
		}
	}
	return s.install(ctx, name, spec, byConfig)
}

// install puts and activates, and notes the seed.
func (s *PolicySource) install(ctx context.Context, name string, spec policy.Spec, by string) error {
	info, _, err := s.Put(ctx, name, spec, by)
	if err != nil {
		return err
	}
	if _, _, err := s.Activate(ctx, name, info.Number, by); err != nil {
		return err
	}
	if by != byConfig {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.policies[name]
	next := n.history.copied()
	next.Seed = specDigest(spec)
	if err := next.save(s.cfg.Dir); err != nil {
		return err
	}
	n.history = next
	return nil
}

// Resolve returns the handle of the policy for a partition and a class: the
// first rule that matches, else the model's, else the default. It waits for
// nothing. ErrNoPolicy when the name that applies has no active revision.
func (s *PolicySource) Resolve(key fleet.PartitionKey, class string) (*policy.Handle, error) {
	name := s.nameFor(key.Normalised(), class)
	if h, ok := (*s.handles.Load())[name]; ok {
		return h, nil
	}
	return nil, fmt.Errorf("resolve policy %q for %s: %w, or it has no active revision", name, key, ErrNoPolicy)
}

func (s *PolicySource) nameFor(key fleet.PartitionKey, class string) string {
	for _, r := range s.cfg.Rules {
		if (r.Model == "" || r.Model == key.Model) && (r.Group == "" || r.Group == key.Group) && (r.Class == "" || r.Class == class) {
			return r.Policy
		}
	}
	if name := s.cfg.Models[key.Model]; name != "" {
		return name
	}
	return s.cfg.Default
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
	for _, n := range s.policies {
		if n.ready != nil {
			n.ready.Retire()
			revs = append(revs, n.ready)
		}
		if n.active == nil {
			continue
		}
		revs = append(revs, n.active)
		n.active.Retire()
	}
	handles := *s.handles.Load()
	s.mu.Unlock()
	return s.closeHandles(handles, revs)
}

// closeHandles takes the revisions out of the handles by publishing an empty
// built-in one that holds nothing, and collects what closing them said.
func (s *PolicySource) closeHandles(handles map[string]*policy.Handle, revs []*policy.Revision) error {
	var errs []error
	for name, h := range handles {
		spec := policy.Spec{Scorers: []policy.ScorerSpec{{StageSpec: policy.StageSpec{Use: policy.DefaultScorer}}}}
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
	for _, sc := range spec.Scorers {
		if _, d, ok := strings.Cut(sc.Use, "@"); ok && strings.HasPrefix(sc.Use, modulePrefix) {
			out = append(out, d)
		}
	}
	return out
}

func owner(name string) string { return "policy " + strconv.Quote(name) }

// now is when a change is made, as it is kept.
func now() time.Time { return time.Now().UTC().Truncate(time.Millisecond) }
