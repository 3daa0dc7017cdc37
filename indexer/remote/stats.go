package remote

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"
)

// Outcome is how a find or a record ended.
type Outcome string

// The outcomes. Those of a Server are the first four.
const (
	Answered    Outcome = "answered"     // by the primary's index
	NoPartition Outcome = "no_partition" // the primary has none of that name
	BlockSize   Outcome = "block_size"   // the primary's blocks have another size
	NoRank      Outcome = "no_rank"      // the primary has no such rank; of records only

	Away        Outcome = "away"        // not asked, or given up while others failed
	Deadline    Outcome = "deadline"    // no answer in time
	Unreachable Outcome = "unreachable" // connection refused, broken or ended
	Status      Outcome = "status"      // an answer of HTTP other than 200
	BadAnswer   Outcome = "bad_answer"  // not what the protocol says
	Dropped     Outcome = "dropped"     // of records: the queue was full
)

// statusOutcomes are those of the protocol's statuses.
var statusOutcomes = [...]Outcome{statusOK: Answered, statusNone: NoPartition, statusSize: BlockSize, statusNoRank: NoRank}

var (
	errAway     = errors.New("the primary is away")
	errDeadline = errors.New("no answer within the deadline")
	errAnswer   = errors.New("bad answer")
)

// statusError is an answer that is not 200.
type statusError int

func (e statusError) Error() string { return "status " + strconv.Itoa(int(e)) }

func outcomeOf(err error) Outcome {
	switch {
	case errors.Is(err, errAway):
		return Away
	case errors.Is(err, errDeadline), errors.Is(err, context.DeadlineExceeded):
		return Deadline
	case errors.Is(err, errAnswer):
		return BadAnswer
	case errors.As(err, new(statusError)):
		return Status
	}
	return Unreachable
}

// counts are numbers by outcome.
type counts map[Outcome]*atomic.Uint64 // read only

func newCounts(outcomes ...Outcome) counts {
	c := counts{}
	for _, o := range outcomes {
		c[o] = new(atomic.Uint64)
	}
	return c
}

func (c counts) add(o Outcome, n int) { c[o].Add(uint64(n)) }

func (c counts) load() map[Outcome]uint64 {
	out := make(map[Outcome]uint64, len(c))
	for o, n := range c {
		out[o] = n.Load()
	}
	return out
}

// Stats is what a Client has done since it was made.
type Stats struct {
	// Finds and Records are by outcome. Finds whose prompt fills no block are not asked for
	// and not counted.
	Finds, Records map[Outcome]uint64
	// Requests are those of finds that were sent, each with one find or several.
	Requests uint64
	// Waiting are the records in the queue now.
	Waiting int
	// Away tells that the primary is not asked now.
	Away bool
}
