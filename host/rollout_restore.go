package host

import (
	"context"
	"errors"
	"log/slog"
)

// byStart is who ends what cannot be made again at a start.
const byStart = "start"

// restoreRollout makes the canary and the shadow of a kept policy again. One
// that can no longer be made ends; the active revision stands.
func (s *PolicySource) restoreRollout(ctx context.Context, n *named) error {
	if c := n.history.Canary; c != nil {
		rev, err := s.build(ctx, n.history.Name, n.history.find(c.Revision))
		if err == nil {
			err = s.publishCanary(n, rev)
		}
		if err := s.endUnmade(ctx, n, whatCanaryEnd, c.Revision, err); err != nil {
			return err
		}
	}
	if sh := n.history.Shadow; sh != nil {
		rev, err := s.buildShadow(ctx, n.history.Name, n.history.find(sh.Revision))
		if err == nil {
			s.startShadow(n, rev)
		}
		return s.endUnmade(ctx, n, whatShadowEnd, sh.Revision, err)
	}
	return nil
}

// endUnmade writes down that what could not be made again has ended; a nil why
// is that it could.
func (s *PolicySource) endUnmade(ctx context.Context, n *named, what string, revision int, why error) error {
	if why == nil {
		return nil
	}
	if ctx.Err() != nil {
		return errors.Join(context.Cause(ctx), why)
	}
	s.log.Error("policy rollout ended: its revision cannot be made", slog.String("policy", n.history.Name),
		slog.Int("revision", revision), slog.String("what", what), slog.Any("err", why))
	next := n.history.copied()
	if what == whatCanaryEnd {
		next.Canary = nil
	} else {
		next.Shadow = nil
	}
	next.note(Change{Who: byStart, What: what, Revision: revision, Why: clip(why.Error(), maxWhy)})
	return s.commit(n, next)
}

// maxWhy bounds a reason in the history, in bytes.
const maxWhy = 512
