package remote

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/internal/backoff"
	"github.com/routerd/routerd/kvcache"
)

// trustedFor is how long an answer speaks for a rank. A decision asks right after its find;
// who only looks at a router in which nobody decides sees no old word.
const trustedFor = 30 * time.Second

// Partition is the index of one partition, at the primary. It is safe for concurrent use.
type Partition struct {
	client    *Client
	key       fleet.PartitionKey
	blockSize int
	head      []byte // of its finds and records

	trust    sync.Map     // fleet.Worker → *trust
	mismatch atomic.Int64 // the primary's block size that was told of; 0 for none
}

// trust is the primary's last word on a rank.
type trust struct {
	at atomic.Pointer[time.Time] // nil while it is not trusted
}

// Find asks the primary what each worker holds of the prompt given by its local block
// hashes, within the deadline. Where nobody can tell, all hold nothing, and none is trusted.
// What is beyond 65,536 blocks, or ranks, counts as not held. workers and out have the same
// length; it keeps neither and writes every element of out.
func (p *Partition) Find(blocks []kvcache.BlockHash, workers []fleet.Worker, out []kvcache.Overlap) {
	clear(out[:len(workers)])
	if len(blocks) == 0 || len(workers) == 0 {
		return
	}
	c := p.client
	turn := c.absence.Turn()
	if turn.Away() {
		c.finds.add(Away, 1)
		return
	}
	blocks, workers = blocks[:min(len(blocks), maxBlocks)], workers[:min(len(workers), maxRanks)]
	begun := time.Now()
	answer, err := c.batches.ask(&find{message: p.message(blocks, workers), deadline: begun.Add(c.cfg.Deadline)}, c.send)
	var f found
	if err == nil {
		f, err = p.read(answer, len(blocks), workers, out)
	}
	if err != nil {
		clear(out[:len(workers)])
		p.failed(turn, err)
		return
	}
	c.finds.add(statusOutcomes[f.status], 1)
	c.observe(time.Since(begun).Seconds())
	if c.absence.Succeeded(turn) {
		c.log.Info("the primary of the index answers again")
	}
	p.compare(f, workers)
}

// message is a find that goes alone.
func (p *Partition) message(blocks []kvcache.BlockHash, workers []fleet.Worker) []byte {
	size := headLength + len(p.head) + 8 + len(blocks)*hashLength + len(workers)*rankLength
	b := append(appendHead(make([]byte, 0, size), kindFind, 1), p.head...)
	b = order.AppendUint32(order.AppendUint32(b, uint32(len(blocks))), uint32(len(workers)))
	b = appendHashes(b, blocks)
	for _, w := range workers {
		b = appendRank(b, w)
	}
	return b
}

// read takes the answer over.
func (p *Partition) read(answer []byte, blocks int, workers []fleet.Worker, out []kvcache.Overlap) (found, error) {
	now := time.Now()
	f, err := readFound(answer, blocks, len(workers), func(i int, o kvcache.Overlap, trusted bool) {
		out[i] = o
		p.note(workers[i], trusted, &now)
	})
	if err != nil {
		return f, fmt.Errorf("%w: %w", errAnswer, err)
	}
	return f, nil
}

// note keeps the primary's word on a rank.
func (p *Partition) note(w fleet.Worker, trusted bool, now *time.Time) {
	v, known := p.trust.Load(w)
	if !known {
		v, _ = p.trust.LoadOrStore(w, &trust{})
	}
	t, _ := v.(*trust)
	if !trusted {
		now = nil
	}
	t.at.Store(now)
}

// compare deals with a primary that has no such partition, or another block size: then
// nothing that it said before holds any more.
func (p *Partition) compare(f found, workers []fleet.Worker) {
	told := p.mismatch.Swap(int64(f.blockSize))
	if f.status == statusOK {
		return
	}
	for _, w := range workers {
		p.note(w, false, nil)
	}
	if f.status == statusSize && told != int64(f.blockSize) {
		p.client.log.Error("the primary's blocks have another size; requests are routed by load",
			"partition", p.key.String(), "block_size", p.blockSize, "primary", f.blockSize)
	}
}

// failed counts a find without an answer, and takes the primary for away unless it has gone
// or come back meanwhile.
func (p *Partition) failed(turn backoff.Turn, err error) {
	c, why := p.client, outcomeOf(err)
	c.finds.add(why, 1)
	if why != Away && c.absence.Failed(turn) { // else who asked for others tells
		c.log.Warn("the primary of the index is away; requests are routed by load", "reason", string(why), "err", err)
	}
}

// Record tells the primary, soon, that a rank was given a prompt, by the blocks of its
// tokens where exact, else of its text. It never blocks, and keeps nothing of blocks.
func (p *Partition) Record(w fleet.Worker, blocks []kvcache.BlockHash, exact bool) {
	blocks = blocks[:min(len(blocks), maxBlocks)]
	b := append(make([]byte, 0, len(p.head)+rankLength+1+4+len(blocks)*hashLength), p.head...)
	b = append(appendRank(b, w), 0)
	if exact {
		b[len(b)-1] = 1
	}
	b = order.AppendUint32(b, uint32(len(blocks)))
	p.client.records.push(appendHashes(b, blocks))
}

// Forget drops the primary's word on a rank that has left. The primary is not told: it has
// the rank from a source of its own, and other clients may have it still.
func (p *Partition) Forget(w fleet.Worker) { p.trust.Delete(w) }

// Trusted tells whether the primary trusts a rank, by its last answer to a find: false where
// that is older than 30 s, or the primary is away. It asks nobody.
func (p *Partition) Trusted(w fleet.Worker) bool {
	v, ok := p.trust.Load(w)
	if !ok || p.client.Away() {
		return false
	}
	t, _ := v.(*trust)
	at := t.at.Load()
	return at != nil && time.Since(*at) <= trustedFor
}
