package app

import (
	"log/slog"
	"time"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/indexer/dump"
)

// KeptOfAPeer is how many ranks of what a peer handed over are still kept when no
// rank took its part for so long.
func KeptOfAPeer(d time.Duration) int {
	key, rank := fleet.PartitionKey{Model: "m", Group: "default"}, fleet.Worker{ID: 1}
	var w warmth
	w.fill(map[string]*dump.Index{key.String(): {BlockSize: 4, Ranks: map[fleet.Worker]*dump.Rank{rank: {}}}}, slog.New(slog.DiscardHandler))
	defer w.drop()
	<-time.After(d)
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, x := range w.parts {
		n += len(x.Ranks)
	}
	return n
}
