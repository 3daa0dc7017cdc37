package host

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"strconv"
	"time"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/fleet"
)

// ShadowSpec says which revision decides on the side, for nobody.
type ShadowSpec struct {
	Revision int     `json:"revision"` // 0 ends the shadow
	Sample   float64 `json:"sample"`   // share of the active revision's decisions, above 0 to 1
}

// ShadowInfo is a running shadow.
type ShadowInfo struct {
	ShadowSpec
	Since  time.Time    `json:"since"`
	Who    string       `json:"who"`
	Report ShadowReport `json:"-"`
}

// ShadowReport is what a shadow came to since it was set or the router started.
type ShadowReport struct {
	Seen    uint64 // decisions of the active revision
	Sampled uint64 // of these, chosen by the sample
	Shed    uint64 // of these, left out: there was no time for them
	Decided uint64 // by the shadow
	Agreed  uint64 // of these, with the same pick
	// Masked counts picks that a filter of the active revision had dropped: they
	// have no regret.
	Masked uint64
	// Regret is the active revision's total at its own pick less its total at the
	// shadow's, in cost units.
	RegretSum, RegretMean, RegretMax float64
	// The load.active_requests of a pick above the mean of its candidates, on
	// average: of the active revision's picks and of the shadow's.
	LoadActive, LoadShadow float64
	Fuel                   uint64        // of all calls
	Time                   time.Duration // of all calls
	Faults                 map[string]uint64
}

func (sh *shadow) report() ShadowReport {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	c := &sh.count
	out := ShadowReport{
		Seen: sh.seen.Load(), Sampled: sh.chosen.Load(), Shed: sh.shed.Load(),
		Decided: c.decided, Agreed: c.agreed, Masked: c.masked, RegretSum: c.regret, RegretMax: c.worst,
		Fuel: c.fuel, Time: c.took, Faults: maps.Clone(c.faults),
	}
	if c.compared > 0 {
		out.RegretMean = c.regret / float64(c.compared)
	}
	if c.loads > 0 {
		out.LoadActive, out.LoadShadow = c.loadActive/float64(c.loads), c.loadShadow/float64(c.loads)
	}
	return out
}

// SetShadow lets a kept revision decide on the side, from the tables that the
// active revision decided from: on one goroutine for all shadows that takes at
// most a tenth of a core, with its own instances, which are set up there too, and nothing of it is seen
// outside but its report. The same revision again changes the sample and goes on
// counting; another replaces it. Revision 0 ends the shadow; without one nothing
// changes and the Change is zero. A *fleet.FieldError for what is out of range;
// ErrNoActive, ErrNoRevision, ErrNoPolicy.
func (s *PolicySource) SetShadow(ctx context.Context, name string, spec ShadowSpec, by string, more ...Because) (Change, error) {
	if spec.Revision == 0 {
		s.mu.Lock()
		defer s.mu.Unlock()
		n, err := s.find(name)
		if err != nil || n.history.Shadow == nil {
			return Change{}, err
		}
		return s.endShadow(n, Change{Who: by, Why: whyOf("", more)})
	}
	if math.IsNaN(spec.Sample) || spec.Sample <= 0 || spec.Sample > 1 {
		return Change{}, &fleet.FieldError{Field: "sample", Value: strconv.FormatFloat(spec.Sample, 'g', -1, 64), Allowed: "above 0 to 1"}
	}
	info := &ShadowInfo{ShadowSpec: spec, Since: now(), Who: by}
	why := whyOf("sample "+strconv.FormatFloat(spec.Sample, 'g', -1, 64), more)
	change, el, err := s.setShadow(name, info, why, nil)
	if err != nil || el == nil {
		return change, err
	}
	rev, err := s.buildShadow(ctx, name, el)
	if err != nil {
		return Change{}, fmt.Errorf("policy %q shadow %d: %w", name, spec.Revision, err)
	}
	change, el, err = s.setShadow(name, info, why, rev)
	if err != nil || el != nil {
		rev.Retire()
	}
	return change, err
}

// buildShadow makes a revision whose instances are its own. Its faults trip
// nothing: it is only ever replayed.
func (s *PolicySource) buildShadow(ctx context.Context, name string, el *historyElement) (*policy.Revision, error) {
	return s.build(scoped(ctx, "shadow"), name, el)
}

// setShadow writes a shadow down and starts it with rev; with a nil rev it
// returns what the revision is to be made from, unless it runs already.
func (s *PolicySource) setShadow(name string, info *ShadowInfo, why string, rev *policy.Revision) (Change, *historyElement, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, el, err := s.beside(name, info.Revision)
	if err != nil {
		return Change{}, nil, err
	}
	running := n.shadow != nil && n.history.Shadow.Revision == info.Revision
	if rev == nil && !running {
		kept := *el
		return Change{}, &kept, nil
	}
	next := n.history.copied()
	change := Change{At: info.Since, Who: info.Who, What: whatShadow, Revision: info.Revision, Why: why}
	if old := next.Shadow; running {
		info.Since = old.Since
	} else if old != nil {
		change.Previous = old.Revision
	}
	next.Shadow = info
	next.note(change)
	if err := s.commit(n, next); err != nil {
		return Change{}, nil, err
	}
	s.log.Info("policy shadow", slog.String("policy", name), slog.Int("revision", info.Revision), slog.Float64("sample", info.Sample), slog.String("by", info.Who))
	if rev != nil {
		err = s.dropShadow(n)
		s.startShadow(n, rev)
		return change, nil, err
	}
	n.shadow.setSample(info.Sample)
	return change, nil, nil
}

// startShadow lets rev decide on the side as the history says. s.mu is held, or
// s is not yet shared.
func (s *PolicySource) startShadow(n *named, rev *policy.Revision) {
	n.shadow = newShadow(rev, n.history.Shadow.Sample)
	s.keepColumns(n)
	n.watch.shadow.Store(n.shadow)
}

// endShadow writes down that the shadow ends, and ends it. s.mu is held.
func (s *PolicySource) endShadow(n *named, c Change) (Change, error) {
	next := n.history.copied()
	c.At, c.What, c.Revision = now(), whatShadowEnd, next.Shadow.Revision
	next.Shadow = nil
	next.note(c)
	if err := s.commit(n, next); err != nil {
		return Change{}, err
	}
	s.log.Info("policy shadow ended", slog.String("policy", n.history.Name), slog.Int("revision", c.Revision), slog.String("by", c.Who), slog.String("why", c.Why))
	return c, s.dropShadow(n)
}

// dropShadow ends the shadow that runs. s.mu is held.
func (s *PolicySource) dropShadow(n *named) error {
	if n.shadow == nil {
		return nil
	}
	sh := n.shadow
	n.shadow = nil
	n.watch.shadow.Store(nil)
	s.keepColumns(n)
	s.desk.forget()
	return sh.end()
}
