package load

import (
	"time"

	"github.com/routerd/routerd/kvcache"
)

// What one booking may put on a rank. More is cut to this: sums over all
// bookings that a process can hold stay within 64 bits.
const (
	maxTokens = 1 << 40
	maxOwn    = 1 << 32 // blocks
)

// Demand is what one booking puts on a rank.
type Demand struct {
	// PrefillTokens is the part of the prompt that is not cached there.
	PrefillTokens int64
	// Blocks are the prompt's sequence hashes. The tracker copies what it keeps.
	Blocks []kvcache.SequenceHash
	// OwnBlocks counts blocks that are shared with nobody, such as those of a
	// prompt whose tokens are not known.
	OwnBlocks int64
}

// PromptDemand is the demand of a prompt of a number of tokens, of which cached
// need not be prefilled, with the sequence hashes of its full blocks as far as
// they are known. A block that the prompt fills in part is held as a whole one
// and shared with nobody, so that the blocks are rounded up. blockSize is above
// 0; the result refers to blocks.
func PromptDemand(tokens, cached int64, blockSize int, blocks []kvcache.SequenceHash) Demand {
	return Demand{
		PrefillTokens: max(tokens-cached, 0),
		Blocks:        blocks,
		OwnBlocks:     max(PromptBlocks(tokens, blockSize)-int64(len(blocks)), 0),
	}
}

// PromptBlocks is the number of blocks that a prompt of a number of tokens
// occupies, the last of them perhaps in part. blockSize is above 0.
func PromptBlocks(tokens int64, blockSize int) int64 {
	size := int64(blockSize)
	n := tokens / size
	if tokens%size > 0 {
		n++
	}
	return n
}

// Owner is told when a booking is dropped with its slot.
type Owner interface {
	// Withdraw ends what depends on the booking. It is called by whoever called
	// Remove, after giving up the lock.
	Withdraw()
}

// Booking is the load entry of one attempt on one rank. The zero value is no
// booking; Book makes it one.
type Booking struct {
	owner      Owner
	slot       Slot
	live       bool
	own        int64 // blocks shared with nobody: of the prompt and of the output
	weight     micro // of own, all together
	leaf       *node
	prev, next *Booking // bookings of the same slot

	prefill       int64 // tokens; 0 once the prefill is complete
	booked        time.Time
	expected      time.Duration // how long the prefill should take; 0 = not modelled
	before, after *Booking      // prefills of the same slot, in order of booking
	place, behind uint64        // in that order, from 1: its own, and that of before when it was booked; 0 for none
}

// Live tells whether the booking still counts.
func (b *Booking) Live() bool { return b.live }

// Owner is the owner that was given to Book.
func (b *Booking) Owner() Owner { return b.owner }
