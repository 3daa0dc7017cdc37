package host

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/fleet"
)

// States of kept revisions beside those of package policy.
const (
	// Canary is a revision that decides for a share of the requests.
	Canary policy.State = "canary"
	// Shadow is a revision that decides on the side, for nobody.
	Shadow policy.State = "shadow"
)

// CanarySpec says which requests a revision decides for beside the active one.
type CanarySpec struct {
	Revision int     `json:"revision"` // 0 ends the canary
	Percent  float64 `json:"percent"`  // 0 to 100
	// By is what the share is drawn by: "request" (also when empty) or "session",
	// where a request without a session counts by itself.
	By string `json:"by,omitempty"`
	// Header, in lower case, and Value, 1 to 256 printable characters that neither
	// begin nor end with a space, send the requests with that header and value to
	// the canary whatever Percent says.
	Header string `json:"header,omitempty"`
	Value  string `json:"value,omitempty"`
}

// CanaryInfo is a running canary.
type CanaryInfo struct {
	CanarySpec
	Since time.Time    `json:"since"`
	Who   string       `json:"who"`
	Stats policy.Stats `json:"-"` // of the canary's revision
}

const (
	byRequest = "request"
	bySession = "session"
)

// maxHeaderText bounds a canary's header name, in bytes, and its value, in
// characters.
const maxHeaderText = 256

func (c *CanarySpec) normalise() error {
	if c.By == "" {
		c.By = byRequest
	}
	switch {
	case math.IsNaN(c.Percent) || c.Percent < 0 || c.Percent > 100:
		return &fleet.FieldError{Field: "percent", Value: strconv.FormatFloat(c.Percent, 'g', -1, 64), Allowed: "0 to 100"}
	case c.By != byRequest && c.By != bySession:
		return &fleet.FieldError{Field: "by", Value: clip(c.By, maxHeaderText), Allowed: "request, session"}
	case len(c.Header) > maxHeaderText || strings.ContainsFunc(c.Header, notHeader):
		return &fleet.FieldError{Field: "header", Value: clip(c.Header, maxHeaderText), Allowed: "the name of a header in lower case, at most 256 bytes"}
	case c.Header == "" && c.Value != "":
		return &fleet.FieldError{Field: "value", Value: clip(c.Value, maxHeaderText), Allowed: "nothing without a header"}
	case c.Header != "" && !headerValue(c.Value):
		return &fleet.FieldError{Field: "value", Value: clip(c.Value, maxHeaderText), Allowed: "1 to 256 printable characters, no space at either end"}
	}
	return nil
}

// headerValue tells whether a request's header can have that value: a canary by
// another would take nothing.
func headerValue(v string) bool {
	return v != "" && utf8.ValidString(v) && utf8.RuneCountInString(v) <= maxHeaderText && v == strings.TrimSpace(v) &&
		!strings.ContainsFunc(v, func(r rune) bool { return !unicode.IsPrint(r) })
}

func notHeader(r rune) bool {
	return (r < 'a' || r > 'z') && (r < '0' || r > '9') && !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
}

// SetCanary lets a kept revision decide for a share of the requests, until it is
// promoted, ended or trips. The same revision again changes the share without
// making it again; another replaces it. Revision 0 ends the canary; without one
// nothing changes and the Change is zero. A *fleet.FieldError for what is out of
// range; ErrNoActive, ErrNoRevision, ErrNoPolicy.
func (s *PolicySource) SetCanary(ctx context.Context, name string, spec CanarySpec, by string, more ...Because) (Change, error) {
	if spec.Revision == 0 {
		s.mu.Lock()
		defer s.mu.Unlock()
		n, err := s.find(name)
		if err != nil || n.history.Canary == nil {
			return Change{}, err
		}
		return s.endCanary(n, Change{Who: by, What: whatCanaryEnd, Revision: n.history.Canary.Revision, Why: whyOf("", more)})
	}
	if err := spec.normalise(); err != nil {
		return Change{}, err
	}
	info := &CanaryInfo{CanarySpec: spec, Since: now(), Who: by}
	why := whyOf(spec.describe(), more)
	change, el, err := s.setCanary(name, info, why, nil)
	if err != nil || el == nil {
		return change, err
	}
	rev, err := s.build(ctx, name, el)
	if err != nil {
		return Change{}, fmt.Errorf("policy %q canary %d: %w", name, spec.Revision, err)
	}
	change, _, err = s.setCanary(name, info, why, rev)
	return change, err
}

// setCanary writes a canary down and publishes it, its revision made in rev
// where it had to be; else, when it has to be, what it is to be made from is
// returned. It owns rev.
func (s *PolicySource) setCanary(name string, info *CanaryInfo, why string, rev *policy.Revision) (Change, *historyElement, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	spare := rev
	defer func() {
		if spare != nil {
			spare.Retire()
		}
	}()
	n, el, err := s.beside(name, info.Revision)
	if err != nil {
		return Change{}, nil, err
	}
	fromReady := false
	switch {
	case n.canary != nil && n.canary.Number() == info.Revision:
		rev = n.canary
	case rev != nil:
	case n.ready != nil && n.ready.Number() == info.Revision:
		rev, fromReady = n.ready, true
	default:
		kept := *el
		return Change{}, &kept, nil
	}
	next := n.history.copied()
	change := Change{At: info.Since, Who: info.Who, What: whatCanary, Revision: info.Revision, Why: why}
	if c := next.Canary; c != nil && c.Revision != info.Revision {
		change.Previous = c.Revision
	} else if c != nil {
		info.Since = c.Since // the same canary with another share
	}
	next.Canary = info
	next.find(info.Revision).Used = true
	next.note(change)
	if err := s.commit(n, next); err != nil {
		return Change{}, nil, err
	}
	if rev == spare {
		spare = nil
	}
	if fromReady {
		n.ready = nil
	}
	if rev.State() == policy.Tripped { // it was asked for all the same
		rev.Retry()
	}
	s.log.Info("policy canary", slog.String("policy", name), slog.Int("revision", info.Revision), slog.Float64("percent", info.Percent), slog.String("by", info.Who))
	return change, nil, s.publishCanary(n, rev)
}

// describe says what the canary takes; header values are left out.
func (c *CanarySpec) describe() string {
	text := strconv.FormatFloat(c.Percent, 'g', -1, 64) + " % by " + c.By
	if c.Header != "" {
		text += " and header " + c.Header
	}
	return text
}

// beside finds a kept revision to run beside the active one. s.mu is held.
func (s *PolicySource) beside(name string, number int) (*named, *historyElement, error) {
	n, err := s.find(name)
	if err != nil {
		return nil, nil, err
	}
	el, err := n.revisionOf(number)
	if err != nil {
		return nil, nil, err
	}
	if n.active == nil {
		return nil, nil, fmt.Errorf("policy %q: %w", name, ErrNoActive)
	}
	if n.history.Active == number {
		return nil, nil, &fleet.FieldError{Field: "revision", Value: strconv.Itoa(number), Allowed: "a kept revision that is not the active one"}
	}
	return n, el, nil
}

// publishCanary lets rev decide for the share that the history says; it replaces
// the canary that runs. s.mu is held.
func (s *PolicySource) publishCanary(n *named, rev *policy.Revision) error {
	c := n.history.Canary
	err := (*s.handles.Load())[n.history.Name].SetCanary(&policy.Canary{
		Revision: rev, Percent: c.Percent, BySession: c.By == bySession, Header: c.Header, Value: c.Value,
	})
	if err != nil {
		return fmt.Errorf("policy %q canary %d: %w", n.history.Name, c.Revision, err)
	}
	if n.canary != nil && n.canary != rev {
		n.canary.Retire()
	}
	n.canary = rev
	return nil
}

// endCanary writes down that the canary ends, and ends it. s.mu is held.
func (s *PolicySource) endCanary(n *named, c Change) (Change, error) {
	next := n.history.copied()
	next.Canary = nil
	c.At = now()
	next.note(c)
	if err := s.commit(n, next); err != nil {
		return Change{}, err
	}
	s.log.Info("policy canary ended", slog.String("policy", n.history.Name), slog.String("what", c.What), slog.String("by", c.Who), slog.String("why", c.Why))
	return c, s.dropCanary(n)
}

// dropCanary takes the canary out of the handle. s.mu is held.
func (s *PolicySource) dropCanary(n *named) error {
	if n.canary == nil {
		return nil
	}
	err := (*s.handles.Load())[n.history.Name].SetCanary(nil)
	n.canary.Retire()
	n.canary = nil
	return err
}
