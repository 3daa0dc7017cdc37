package catalog

import (
	"context"

	"github.com/routerd/routerd/fleet"
)

// Source hands over complete desired lists of workers from one place: a file, an
// API, a name server. sourcetest.Run is its contract in executable form. Safe for
// concurrent use.
type Source interface {
	// Name is the source's name in views, conflicts and metrics. It never changes.
	Name() string
	// Watch hands the whole list to give, at once and again after each change, one
	// call at a time. The records need not be normalised. An error of give is the
	// refusal of the whole list: the one before stays, and the source goes on. Watch
	// returns nil when ctx ends, and an error when the place is lost; then it is
	// called again after a pause.
	Watch(ctx context.Context, give func([]fleet.Record) error) error
	// List reads the whole list once, for the periodic comparison.
	List(ctx context.Context) ([]fleet.Record, error)
}
