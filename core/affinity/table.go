// Package affinity keeps which worker each session of a partition is bound to.
package affinity

import (
	"github.com/routerd/routerd/fleet"
)

// Target is what a session is bound to.
type Target struct {
	Worker fleet.Worker
	// Generation is that of the worker's record: one that was deleted and
	// registered anew is another worker.
	Generation uint64
}

// Version orders the bindings of a session over all routers: the greater
// sequence, then the greater writer, is the newer.
type Version struct {
	Sequence uint64
	Writer   uint64
}

// Event tells other routers of a binding.
type Event struct {
	ID      string
	Worker  fleet.Worker
	Version Version
}
