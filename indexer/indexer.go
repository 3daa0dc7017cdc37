// Package indexer says what an index is: the answer to "who holds which prefix", fed by the KV events of engines.
//
// Implementations live in the packages below it; package indextest checks them against a plain model. An index knows
// neither policies nor sockets. What every implementation computes:
//
//   - Per worker and rank, and per tier, a map from the engine's block hash to a content path: the local hashes of
//     the blocks from the root. A path is held while at least one engine hash maps to it. Storing a hash again with
//     the same content changes nothing; with other content it moves.
//   - A store is taken whole or dropped whole, except for the blocks behind the first one whose content the tokens
//     do not tell. Its parent is looked up in the store's own tier, then from the fastest tier on; an unknown parent
//     never attaches to the root. The salt of a chain's first block holds for the whole chain.
//   - Only the main cache group counts: the first one stored with a kind that can be matched by prefix.
//   - An index with a cap in bytes may give up blocks that the engine still holds. They are unknown from then on, until
//     they are stored anew; what names an unknown block of such a worker is left out and costs no trust.
//   - A block below an evicted one stays known and counts again when the evicted one returns.
package indexer

import (
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/kvcache"
)

// Indexer is an index of one partition. It is safe for concurrent use; calls for one worker take effect in the
// order in which they are made, and reads run on the caller's goroutine.
type Indexer interface {
	Feed
	View
	Snapshots

	// Find sets out[i] to how much of the prompt workers[i] holds. It is exact for workers that no call changes
	// meanwhile. An unknown worker holds nothing. out must be at least as long as workers.
	Find(blocks []kvcache.BlockHash, workers []fleet.Worker, out []kvcache.Overlap)
}

// Feed is the writing side of an index.
type Feed interface {
	// Apply applies events of w in order and keeps nothing of them. A worker that is not known becomes known.
	Apply(w fleet.Worker, events []kvcache.Event) kvcache.Applied

	// Clear drops all blocks of w and what was learned about its cache groups: the engine started anew.
	Clear(w fleet.Worker)

	// Remove forgets w wholly.
	Remove(w fleet.Worker)
}

// Recorder is the side of an index that learns from decisions: a worker that is given a request is about to hold the
// blocks of its prompt.
type Recorder interface {
	// Record notes that w was given a prompt, told by its local block hashes. It keeps nothing of blocks. A worker
	// that is not known becomes known.
	Record(w fleet.Worker, blocks []kvcache.BlockHash)

	// Forget voids what was recorded for w.
	Forget(w fleet.Worker)
}

// View shows what an index holds of a worker.
type View interface {
	// Blocks returns how many engine blocks w holds on each tier.
	Blocks(w fleet.Worker) kvcache.TierCounts

	// Hashes returns the engine hashes that w holds, sorted, by tier; tiers without any are left out.
	Hashes(w fleet.Worker) map[kvcache.Tier][]kvcache.EngineHash
}
