package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/plugins/abi"
)

// auditSource makes stages and takes note of those that are audited, so that
// their revision hears when one gives unequal bits for equal frames.
type auditSource struct {
	policy.StageSource
	mu      sync.Mutex // guards audited
	audited []Audited
}

// Stage makes a stage.
func (a *auditSource) Stage(ctx context.Context, kind abi.Kind, use string, config json.RawMessage) (policy.Stage, string, error) {
	st, digest, err := a.StageSource.Stage(ctx, kind, use, config)
	if audited, ok := st.(Audited); ok && err == nil {
		a.mu.Lock()
		a.audited = append(a.audited, audited)
		a.mu.Unlock()
	}
	return st, digest, err
}

// compile makes the pipeline of a specification; call heard with its revision.
func (s *PolicySource) compile(ctx context.Context, spec policy.Spec) (p *policy.Pipeline, digests []string, heard func(*policy.Revision), err error) {
	src := &auditSource{StageSource: s.stages}
	p, digests, err = policy.Compile(ctx, spec, src)
	return p, digests, func(rev *policy.Revision) {
		for _, a := range src.audited {
			a.SetAuditFailed(func(f *policy.Fault) { s.distrust(rev, f) })
		}
	}, err
}

// distrust hears of a revision with a module that does not keep its promise to
// be deterministic: it trips at once. It does not block.
func (s *PolicySource) distrust(rev *policy.Revision, fault *policy.Fault) {
	if s.guardOff.Load() {
		return
	}
	rev.Trip()
	s.trips.add(trip{rev: rev, fault: *fault, distrusted: true})
	s.trips.wakeUp()
}

// replaceDistrusted lets the fallback stand in for the active revision until an
// operator activates it again. s.mu is held.
func (s *PolicySource) replaceDistrusted(n *named, why string) error {
	h := &n.history
	s.log.Error("policy tripped: a module is not deterministic; its fallback decides", slog.String("policy", h.Name),
		slog.Int("revision", h.Active), slog.String("why", why))
	// Built-in stages alone: nothing to wait for.
	rev, err := s.standIn(context.Background(), h.Name, h.find(h.Active))
	if err != nil {
		return err
	}
	written := s.noteTripped(n, &keptTrip{Why: why, Distrusted: true})
	if err := s.publish(n, rev); err != nil {
		return errors.Join(written, fmt.Errorf("trip policy %q: %w", h.Name, err))
	}
	n.problem, n.distrusted = why, true
	return written
}
