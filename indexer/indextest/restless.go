package indextest

import (
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/indexer"
	"github.com/routerd/routerd/kvcache"
)

// restless is an index that another one takes the place of at every few changes.
type restless struct {
	indexer.Indexer
	hop   func(indexer.Indexer) indexer.Indexer
	calls int
}

// Restless is an index that begins with first and, at every third Apply, goes on with what hop makes of the one before.
func Restless(first indexer.Indexer, hop func(from indexer.Indexer) (to indexer.Indexer)) indexer.Indexer {
	return &restless{Indexer: first, hop: hop}
}

func (r *restless) Apply(w fleet.Worker, events []kvcache.Event) kvcache.Applied {
	if r.calls++; r.calls%3 == 0 {
		r.Indexer = r.hop(r.Indexer)
	}
	return r.Indexer.Apply(w, events)
}
