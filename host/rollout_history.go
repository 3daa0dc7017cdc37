package host

import (
	"slices"
	"time"
)

// What a change of a policy is called in its history.
const (
	whatPut       = "put"
	whatActivate  = "activate"
	whatSeed      = "seed"
	whatRollback  = "rollback"
	whatPromote   = "promote"
	whatRetry     = "retry" // a tripped revision got another chance
	whatCanary    = "canary"
	whatCanaryEnd = "canary_end"
	whatShadow    = "shadow"
	whatShadowEnd = "shadow_end"
	whatTrip      = "trip"
	whatProbeOK   = "probe_ok" // a tripped revision is on probation
)

// keptChanges is how many changes a policy's history keeps.
const keptChanges = 100

// Change is one entry of a policy's history.
type Change struct {
	At  time.Time `json:"at"`
	Who string    `json:"who"`
	// What is put, activate, seed, rollback, promote, retry, canary, canary_end,
	// shadow, shadow_end, trip or probe_ok.
	What     string `json:"what"`
	Revision int    `json:"revision"`           // that the change is about
	Previous int    `json:"previous,omitempty"` // that it replaced or ended; 0 for none
	Why      string `json:"why,omitempty"`
}

// note puts a change into the history.
func (h *history) note(c Change) {
	if c.At.IsZero() {
		c.At = now()
	}
	h.Changes = append(slices.Clone(h.Changes), c)
	if over := len(h.Changes) - keptChanges; over > 0 {
		h.Changes = slices.Delete(h.Changes, 0, over)
	}
}

// Because is why someone makes a change, for the history: a short text of
// printable characters, whose length the caller bounds.
type Because string

// whyOf joins what a change itself says with why it is made.
func whyOf(own string, more []Because) string {
	for _, b := range more {
		switch {
		case b == "":
		case own == "":
			own = string(b)
		default:
			own += "; " + string(b)
		}
	}
	return own
}

// tripped is the number of the revision that the change says has tripped; 0 for
// none.
func (c *Change) tripped() int {
	switch {
	case c.Who != byGuard:
		return 0
	case c.What == whatTrip, c.What == whatShadowEnd:
		return c.Revision
	case c.What == whatRollback: // its canary
		return c.Previous
	}
	return 0
}

// LastTrip finds in the kept history when and why a revision has tripped last,
// as the active one, as canary or as shadow.
func (p *PolicyInfo) LastTrip(revision int) (trip Change, ok bool) {
	return lastTrip(p.History, revision)
}

func lastTrip(changes []Change, revision int) (trip Change, ok bool) {
	for i := len(changes) - 1; i >= 0; i-- {
		if changes[i].tripped() == revision && revision != 0 {
			return changes[i], true
		}
	}
	return Change{}, false
}
