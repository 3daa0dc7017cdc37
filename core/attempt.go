package core

import (
	"time"

	"github.com/routerd/routerd/core/affinity"
	"github.com/routerd/routerd/core/load"
	"github.com/routerd/routerd/core/lora"
	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/core/reserve"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/kvcache"
)

// attempt is one request on its way to a selection. Its buffers come from the
// partition's pool; it is owned by one goroutine.
type attempt struct {
	req      *Request
	sel      *Selection
	claim    reserve.Claim // of a Book
	booked   *booking      // of a Book that was committed
	started  time.Time
	number   uint64 // of the decision
	sequence uint64
	ticket   uint64
	seed     uint64

	tokens     int                    // prompt length, a batch's as a whole
	blockCount int                    // full blocks of that length
	blocks     []kvcache.BlockHash    // of the prompt; empty when unknown
	hashes     []kvcache.BlockHash    // buffer of blocks, where they were computed here
	prefixes   []kvcache.SequenceHash // of blocks
	text       []kvcache.BlockHash    // of a prompt whose tokens are not all of it; else nil
	textChain  []kvcache.SequenceHash // buffer: of text
	sequences  []kvcache.SequenceHash // what load counts the blocks by: prefixes, the caller's own, or some that nobody shares
	exact      bool

	// The snapshot: candidates by row of the table.
	view     *view
	passed   *inhibitions // the inhibitions that rows was made with
	rows     []int32      // row of the view
	open     []int32      // rows, also those that an affinity target rules out; empty where it rules out none
	allowed  []bool       // scratch: by member
	keep     []bool       // scratch: by candidate
	workers  []fleet.Worker
	overlaps []kvcache.Overlap
	byText   []kvcache.Overlap // scratch: what the index holds of text
	loads    []load.Load
	versions []load.Version
	active   []float64 // what the prompt's leading blocks that are held count there, by slot

	placed     *adapterTable // that rows was made with, of a request for an adapter
	universe   []lora.Candidate
	inUse      []adaptersNoted      // by row, of a request for an adapter
	shared     []kvcache.BlockRange // of the prompt, in the shared cache
	reports    []load.Report        // of the engines, by row; empty when nobody is asked
	reported   []bool
	overloaded map[load.Slot]bool // candidates that are, all the same; mostly nil
	beside     []RankOverlap      // of the chosen worker; only where the request asks for detail
	stale      bool               // rows lack some that were overloaded
	passedOver bool               // rows lack some that are out of reach or refuse

	bound           *affinity.Target // of the session; nil for none
	exclusive       bool             // nobody but the bound worker will do
	unsteered       bool             // the session is left alone
	tookTurn        bool
	boundRow        int // its row of the table; -1 when it is not there
	hold            affinity.Hold
	waiting         waiting
	needs           string    // see Request.needs; of a request that may have to wait
	named           bool      // whether needs is there
	cachedSomewhere int64     // most prompt tokens that any candidate holds
	due             time.Time // by when the caller wants an answer

	table      policy.Table
	decision   policy.Decision
	asked      asked
	lastStages stageNames // of the revision that was asked last
	conflicts  int
	turn       *turn
}

// take returns an attempt from the partition's pool; nil when that was forgotten.
func (p *Partition) take() *attempt {
	if p.attempting.Add(1) < 0 {
		return nil
	}
	if a, ok := p.attempts.Get().(*attempt); ok {
		return a
	}
	return &attempt{}
}

// give puts an attempt back. It forgets what belongs to the request, so that
// the pool keeps only buffers.
func (p *Partition) give(a *attempt) {
	a.req, a.sel, a.view, a.passed, a.blocks, a.text, a.sequences, a.turn, a.booked, a.placed = nil, nil, nil, nil, nil, nil, nil, nil, nil, nil
	a.claim, a.asked, a.beside = reserve.Claim{}, asked{}, nil
	a.bound, a.hold, a.shared = nil, affinity.Hold{}, a.shared[:0]
	a.waiting = waiting{rows: a.waiting.rows[:0]}
	a.reported = a.reported[:0]
	a.table.Overrides = nil
	a.decision.Fault = nil
	p.attempts.Put(a)
	p.attempting.Add(-1)
}

// begin takes over a request: lengths, hashes, seed.
func (a *attempt) begin(p *Partition, req *Request) error {
	if req.Adapter != "" && req.Kind != Advisory { // who only asks is no load to make room for
		p.allocator.Arrived(req.Adapter, time.Now())
	}
	a.req, a.started, a.view, a.turn, a.conflicts = req, time.Now(), nil, nil, 0
	a.asked, a.rows, a.stale, a.passedOver = asked{}, a.rows[:0], false, false
	a.bound, a.boundRow, a.exclusive, a.unsteered, a.tookTurn = nil, -1, false, false, false
	a.cachedSomewhere, a.due = 0, time.Time{}
	a.needs, a.named = "", req.Allow == nil && req.Adapter == "" && req.Constraints.empty()
	a.number = p.core.numbers.Add(1)
	a.ticket = a.number
	if err := a.readPrompt(p); err != nil {
		return err
	}
	a.sequence = p.sequence.Load()
	if req.Kind != Advisory {
		a.sequence = p.sequence.Add(1) - 1
	}
	if req.Seed != nil {
		a.seed = *req.Seed
		return nil
	}
	a.seed = p.seedFor(a.sequence)
	seed := a.seed
	req.Seed = &seed
	return nil
}

// cached is the number of prompt tokens that a row need not prefill: device
// blocks whole, host and disk by the default weights of kv-aware.
func (a *attempt) cached(row, blockSize int) int64 {
	o := a.overlaps[row]
	blocks := float64(o.Device) + 0.75*float64(o.Host) + 0.25*float64(o.Disk)
	return min(int64(blocks*float64(blockSize)+0.5), int64(a.tokens))
}

// demand is what a booking on the row puts on its rank.
func (a *attempt) demand(row, blockSize int) load.Demand {
	return a.demandOf(a.cached(row, blockSize), blockSize)
}

// demandOf is what a booking puts on a rank that has cached prompt tokens.
func (a *attempt) demandOf(cached int64, blockSize int) load.Demand {
	d := load.PromptDemand(int64(a.tokens), cached, blockSize, a.sequences)
	if !holds(a.req.TrackPrefill) {
		d.PrefillTokens = 0
	}
	return d
}

// decodeBlocks is what a rank would hold with the request booked on it; the loads
// must be there.
func (a *attempt) decodeBlocks(row, blockSize int) float64 {
	blocks := float64(load.PromptBlocks(int64(a.tokens), blockSize))
	return a.loads[row].DecodeBlocks + blocks - a.active[a.view.rows[a.rows[row]].slot]
}

// holds is a setting of a request that is true unless it says otherwise.
func holds(setting *bool) bool { return setting == nil || *setting }
