package kvcache

// EventKind says what an event does.
type EventKind uint8

// The kinds of event.
const (
	Stored EventKind = iota
	Removed
	Cleared
)

// String returns the kind's name in metrics.
func (k EventKind) String() string {
	switch k {
	case Stored:
		return "stored"
	case Removed:
		return "removed"
	case Cleared:
		return "cleared"
	}
	return "unknown"
}

// Attention says whether the blocks of an event's cache group can be matched by prefix.
type Attention uint8

// The attention classes. An engine that names no kind has one group, or tells groups by number only.
const (
	AttentionUnnamed  Attention = iota // the event names no kind
	AttentionPrefix                    // every block of a prefix must be present: matchable
	AttentionWindowed                  // sliding windows, state spaces, encoders: never matchable
	AttentionUnknown                   // a kind this version does not know: not matchable
)

// Event is one decoded KV-cache event of one worker and rank. Whoever decodes an event owns its slices and may reuse
// them after the call that was given the event; a receiver that keeps anything copies it.
type Event struct {
	Kind      EventKind
	Tier      Tier
	Attention Attention
	Group     int32 // cache group; 0 when the engine names none

	Hashes    []EngineHash
	Parent    EngineHash // meaningful when HasParent
	HasParent bool

	// Tokens are the ids that the stored blocks cover. With Bigram set each block covers BlockSize+1 of them and
	// shares the last with the next block.
	Tokens    []uint32
	Bigram    bool
	BlockSize int // tokens in a block; 0 with no tokens: known blocks that are now on Tier too

	Adapter string // adapter name, "" for the base model
	LoraID  int64  // adapter number where the engine sends no name, else 0
	Salt    string // cache salt of the chain, "" when this event names none

	// Items are, by stored block, the hashes of the images and other items that touch it, in any order; blocks beyond
	// its end have none. They are part of the blocks' identity.
	Items [][]uint64

	// With Opaque set, the blocks from OpaqueFrom on hold content that neither tokens nor items tell.
	Opaque     bool
	OpaqueFrom int
}

// Blocks returns how many blocks the event counts for in a drop counter: its hashes, at least 1.
func (e *Event) Blocks() uint64 { return uint64(max(1, len(e.Hashes))) }

// Applied is the result of applying events to an index.
type Applied struct {
	Stored  int // blocks named by stores that were taken over, known ones included
	Removed int // blocks that a removal took out
	Cleared int // clears
	Drops   DropCounts

	// Degraded is set when, after the last clear among the events, one was dropped that leaves the index unlike the
	// engine: an unknown parent or a foreign block size.
	Degraded bool
}
