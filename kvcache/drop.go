package kvcache

// DropReason says why a message, an event or a block was not taken over. The list is closed: metrics and APIs use
// its names as label values.
type DropReason uint8

// The reasons. The comment says what is counted.
const (
	DropCorruptMessage     DropReason = iota // messages that are no event batch
	DropDuplicateMessage                     // messages with a number that was already applied
	DropUndecodable                          // events with a missing field or a wrong type
	DropUnknownEvent                         // events of an unknown type
	DropUnknownMedium                        // events that name an unknown medium
	DropRemoteLocality                       // events about blocks that are not at the worker
	DropBadRank                              // events for a rank that the worker does not have
	DropUnknownParent                        // blocks whose parent was never stored or is gone
	DropOpaqueParent                         // blocks below one that could not be indexed
	DropMultimodal                           // blocks with content that neither tokens nor items tell
	DropBlockSizeMismatch                    // blocks of another size than the partition's
	DropPartialBlock                         // blocks shorter than a full one
	DropNotDense                             // blocks whose tokens do not cover them exactly
	DropDuplicateInList                      // blocks of a store that names one hash twice
	DropSelfParent                           // blocks of a store that names its own parent
	DropConflictingSalt                      // blocks whose salt differs from their parent's
	DropOtherGroup                           // blocks of a cache group that is not the main one
	DropUnknownGroup                         // blocks of a cache group that was never stored
	DropUnknownAttention                     // blocks of an unknown attention kind
	DropUnknownRemove                        // removed blocks that were not known
	DropUnknownPlaceholder                   // blocks announced on another tier without being known
	DropIndexFull                            // blocks for which the index has no room
	DropTooLarge                             // connections that ended for a message that is too large, or broken
	DropForeignTopic                         // messages whose topic names no worker that listens there
	DropEvictedParent                        // blocks whose parent is not known, of a worker of which the index gave up blocks to stay below its cap
	DropEvictedBlock                         // removed or announced blocks that are not known, of such a worker
	dropReasons
)

// dropNames are the reasons' names, in the order of the constants.
var dropNames = [dropReasons]string{
	"corrupt_message", "duplicate_message", "undecodable", "unknown_event", "unknown_medium", "remote_locality",
	"bad_rank", "unknown_parent", "opaque_parent", "multimodal", "block_size_mismatch", "partial_block", "not_dense",
	"duplicate_in_list", "self_parent", "conflicting_salt", "other_group", "unknown_group", "unknown_attention",
	"unknown_remove", "unknown_placeholder", "index_full", "too_large", "foreign_topic", "evicted_parent", "evicted_block",
}

// String returns the reason's name, fit for a label value.
func (r DropReason) String() string {
	if r < dropReasons {
		return dropNames[r]
	}
	return "unknown"
}

// DropReasons returns every reason, in order.
func DropReasons() []DropReason {
	all := make([]DropReason, dropReasons)
	for i := range all {
		all[i] = DropReason(i)
	}
	return all
}

// DropCounts counts drops by reason. The zero value is empty.
type DropCounts [dropReasons]uint64

// Add adds other to c.
func (c *DropCounts) Add(other *DropCounts) {
	for i, n := range other {
		c[i] += n
	}
}

// Map returns the counts that are not 0 by the reasons' names; never nil.
func (c *DropCounts) Map() map[string]uint64 {
	m := map[string]uint64{}
	for i, n := range c {
		if n > 0 {
			m[dropNames[i]] = n
		}
	}
	return m
}
