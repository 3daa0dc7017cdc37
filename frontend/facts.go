package frontend

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/kvcache"
	"github.com/routerd/routerd/upstream"
)

// factsAge is how old what the frontend knows of partitions may be.
const factsAge = time.Second

// facts are what a selection does not tell: block sizes of partitions, numbers
// of ranks of workers. Safe for concurrent use.
type facts struct {
	known      atomic.Pointer[knownFacts]
	refreshing sync.Mutex
}

type knownFacts struct {
	at     time.Time
	blocks map[fleet.PartitionKey]int
	ranks  map[fleet.WorkerID]int
}

// read returns facts of at most factsAge, or older ones while another caller
// is reading them anew.
func (f *facts) read(c Selector) *knownFacts {
	k := f.known.Load()
	if k != nil && (time.Since(k.at) < factsAge || !f.refreshing.TryLock()) {
		return k
	}
	if k == nil {
		f.refreshing.Lock()
	}
	defer f.refreshing.Unlock()
	return f.refresh(c)
}

func (f *facts) refresh(c Selector) *knownFacts {
	k := &knownFacts{at: time.Now(), blocks: map[fleet.PartitionKey]int{}, ranks: map[fleet.WorkerID]int{}}
	for _, p := range c.Partitions() {
		k.blocks[p.Key()] = p.BlockSize
		for _, r := range p.Ranks {
			k.ranks[r.Worker]++
		}
	}
	f.known.Store(k)
	return k
}

// ranks is the number of ranks of a worker that was just selected.
func (f *facts) ranks(c Selector, id fleet.WorkerID) int {
	if n, ok := f.read(c).ranks[id]; ok {
		return n
	}
	f.refreshing.Lock() // it is new
	defer f.refreshing.Unlock()
	return f.refresh(c).ranks[id]
}

// blockSize is the partition's, in tokens; 0 when unknown.
func (f *facts) blockSize(c Selector, key fleet.PartitionKey) int { return f.read(c).blocks[key] }

// batch describes a batch whose first prompt is known: its blocks route the
// request, the tokens of all are its load.
func (f *facts) batch(c Selector, req *core.Request, shape promptShape) {
	p := &req.Prompt
	if size := f.blockSize(c, req.Partition); size > 0 {
		blocks, err := kvcache.BlockHashes(nil, shape.tokens, size, kvcache.Seed(req.Adapter, p.Salt))
		if err == nil {
			p.Blocks, p.Count, p.Exact = blocks, len(shape.tokens)+shape.rest, true
			return
		}
	}
	p.Tokens = shape.tokens
}

// endpoints remembers parsed worker addresses. Safe for concurrent use.
type endpoints struct {
	mu     sync.RWMutex // guards parsed
	parsed map[string]upstream.Endpoint
}

// mostEndpoints bounds the memory of workers that have come and gone.
const mostEndpoints = 8192

func (e *endpoints) of(raw string) (upstream.Endpoint, error) {
	e.mu.RLock()
	ep, ok := e.parsed[raw]
	e.mu.RUnlock()
	if ok {
		return ep, nil
	}
	ep, err := upstream.ParseEndpoint(raw)
	if err != nil {
		return ep, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.parsed == nil || len(e.parsed) >= mostEndpoints {
		e.parsed = map[string]upstream.Endpoint{}
	}
	e.parsed[raw] = ep
	return ep, nil
}
