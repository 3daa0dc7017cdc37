package health

import (
	"context"
	"time"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/fleet"
)

// watched is one worker that is watched. Monitor.mu guards it.
type watched struct {
	id      fleet.WorkerID
	name    string
	url     string
	group   *group
	machine machine
	born    uint64 // the listing that was under way when it was added
	serving bool   // the catalog has it in rotation, but for health: it counts in its group

	flight *flight   // the probe under way; nil for none
	due    time.Time // of what comes next
	place  int       // in agenda; -1 when it is not there

	// What follows: the machine's verdict, and whether it stays in all the same.
	verdict verdict
	since   time.Time // when the verdict's state became what it is
	counted bool      // in group.serving
	bad     bool      // in group.bad
	kept    bool
	wasOut  bool     // out, when note looked last
	wasKept bool     // kept, then
	slowly  bool     // it has been out after it had served: it returns slowly
	asked   bool     // somebody wants to know
	told    standing // what he was told last

	suspected bool // in Monitor.suspects
}

// flight is a probe under way.
type flight struct {
	cancel context.CancelFunc
	done   chan struct{} // closed at its end
}

// standing is a worker's standing as the catalog is told it; reason is empty for none.
type standing struct {
	lifecycle core.Lifecycle
	reason    string
}

func (s standing) reasons() []string {
	if s.reason == "" {
		return nil
	}
	return []string{s.reason}
}

// out tells whether health takes the worker out of rotation.
func (w *watched) out() bool {
	return w.verdict.state == silent || w.verdict.state == unfit && !w.kept
}

func (w *watched) standing() standing {
	switch {
	case w.verdict.state == starting:
		return standing{core.Incomplete, w.verdict.reason}
	case w.out():
		return standing{core.Ejected, w.verdict.reason}
	case w.kept:
		return standing{core.Ready, kept(w.verdict.reason)}
	}
	return standing{core.Ready, ""}
}

// look brings the verdict up to date.
func (w *watched) look(r *Config, now time.Time) {
	v := w.machine.verdict(r, now)
	if v.state != w.verdict.state {
		w.group.take(w) // its place goes by since
		w.since = now
	}
	w.verdict = v
}
