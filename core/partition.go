package core

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/routerd/routerd/core/affinity"
	"github.com/routerd/routerd/core/load"
	"github.com/routerd/routerd/core/lora"
	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/core/queue"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/kvcache"
)

// Partition is one model in one routing group: its workers, their projected
// load, its index and which policy decides for it. It stays for a while when it has
// lost all its workers (SelectionCore.Forget). Safe for concurrent use.
type Partition struct {
	core      *SelectionCore
	key       fleet.PartitionKey
	blockSize int
	index     KvIndex
	created   time.Time
	salt      uint64 // tells the partitions' draws apart under one seed

	eagle atomic.Bool // fixed once it is settled

	// Guarded by the core's members.
	settled    bool      // by its first worker
	emptiedAt  time.Time // when it lost its last worker, or was made
	preparedAt time.Time // when somebody prepared it last

	ruling     atomic.Pointer[ruling]
	sequence   atomic.Uint64 // requests so far, advisory ones left out
	attempting atomic.Int64  // attempts that were taken and not given back; forgotten once it is
	attempts   sync.Pool     // *attempt, whose buffers are reused
	view       atomic.Pointer[view]

	sessions  *affinity.Table
	adapters  atomic.Pointer[adapterTable] // nil until somebody says more than the records
	allocator *lora.Allocator

	mu      sync.Mutex // guards all below, and every change of view
	tracker *load.Tracker
	ranks   []rankState  // by slot
	reports []rankReport // by slot
	queue   *queue.Queue
	grants  map[string]int // by lane: those who may go on and have not booked yet
	// returning counts those who were sent back and are not in their place yet.
	returning int
	// followers wait in a lane for the worker of their session, by session.
	followers map[string]map[*attempt]struct{}
	uses      map[adapterOn]*adapterUse
	inUse     map[fleet.WorkerID]int // adapters with bookings, by worker
	slotOf    map[fleet.Worker]load.Slot
	turns     turnstile
}

// rankState is what a slot stands for; member is nil while the slot is free.
type rankState struct {
	worker fleet.Worker
	member *member
}

func newPartition(c *SelectionCore, key fleet.PartitionKey, blockSize int, r *ruling, index KvIndex) *Partition {
	p := &Partition{
		core: c, key: key, blockSize: blockSize, index: index, created: time.Now(), emptiedAt: time.Now(), preparedAt: time.Now(),
		salt: xxh3.HashString(key.String()), slotOf: map[fleet.Worker]load.Slot{},
		sessions: affinity.New(c.cfg.Affinity), tracker: load.NewTracker(c.cfg.Estimator),
		queue: queue.New(*c.queueing.Load()), grants: map[string]int{}, followers: map[string]map[*attempt]struct{}{},
		allocator: lora.NewAllocator(lora.DefaultAllocatorConfig()), uses: map[adapterOn]*adapterUse{}, inUse: map[fleet.WorkerID]int{},
	}
	p.ruling.Store(r)
	p.view.Store(newView(nil, nil))
	return p
}

// departed is what ends with ranks that leave, to be told after the lock is given up.
type departed struct {
	owners []load.Owner // of their bookings
	ranks  []fleet.Worker
}

// apply publishes changed and removed workers, and returns what that ends. mu must be
// held.
func (p *Partition) apply(upserts map[fleet.WorkerID]*member, removals []fleet.WorkerID) (d departed) {
	old := p.view.Load()
	members := make([]*member, 0, len(old.members)+len(upserts))
	for _, m := range old.members {
		id := m.record.ID
		next := upserts[id]
		switch {
		case slices.Contains(removals, id):
			p.dropRanks(m, nil, &d)
		case next == nil:
			members = append(members, m)
		default:
			p.dropRanks(m, next, &d)
		}
	}
	for _, m := range upserts {
		p.putRanks(m)
		members = append(members, m)
	}
	slices.SortFunc(members, func(a, b *member) int {
		return fleet.Worker{ID: a.record.ID}.Compare(fleet.Worker{ID: b.record.ID})
	})
	p.view.Store(newView(members, p.slotOf))
	p.pump()
	return d
}

// dropRanks gives up the slots of old's ranks that next does not have; all of
// them when next is nil or a new generation.
func (p *Partition) dropRanks(old, next *member, d *departed) {
	same := next != nil && next.generation == old.generation
	for _, rank := range old.record.Ranks() {
		w := fleet.Worker{ID: old.record.ID, Rank: rank}
		if same && slices.Contains(next.record.Ranks(), rank) {
			if !old.eligibleAs(next) {
				p.tracker.Touch(p.slotOf[w])
			}
			continue
		}
		s := p.slotOf[w]
		d.owners = p.tracker.Remove(s, d.owners, time.Now())
		d.ranks = append(d.ranks, w)
		p.ranks[s], p.reports[s] = rankState{}, rankReport{}
		delete(p.slotOf, w)
	}
}

// putRanks makes every rank of a member known, with a slot of its own.
func (p *Partition) putRanks(m *member) {
	for _, rank := range m.record.Ranks() {
		w := fleet.Worker{ID: m.record.ID, Rank: rank}
		s, ok := p.slotOf[w]
		if !ok {
			s = p.tracker.Add()
			p.slotOf[w] = s
			for len(p.ranks) < p.tracker.Len() {
				p.ranks, p.reports = append(p.ranks, rankState{}), append(p.reports, rankReport{})
			}
		}
		p.ranks[s] = rankState{w, m}
	}
}

// snapshot fills the attempt with the candidates, what each holds of the prompt
// and the load of each at one moment. It fails when nobody is eligible. again
// asks for the request's session to be taken anew.
func (p *Partition) snapshot(a *attempt) (again bool, err error) {
	for {
		v, inhibited := p.view.Load(), p.core.inhibited.Load()
		if v != a.view || inhibited != a.passed || p.core.refusals.Load() != nil || a.stale || a.passedOver || a.req.Adapter != "" && a.placed != p.adapters.Load() {
			if err := p.lookUp(a); err != nil {
				return false, err
			}
		}
		p.askReports(a)
		done, err := p.projectLoad(a)
		if err != nil {
			return false, err
		}
		if done {
			return p.steer(a)
		}
		a.view = nil
	}
}

// lookUp finds the candidates and what each holds of the prompt.
func (p *Partition) lookUp(a *attempt) error {
	v, inhibited := p.view.Load(), p.core.inhibited.Load()
	if err := a.candidates(v, p); err != nil {
		return err
	}
	if err := p.passOver(a, v, inhibited, p.core.refusals.Load()); err != nil {
		return err
	}
	a.view, a.passed, a.stale = v, inhibited, false
	a.matchIndex(p)
	return nil
}

// projectLoad copies load and version of every candidate and drops those that are
// overloaded or, with an affinity target, of another worker; false when the view has changed.
func (p *Partition) projectLoad(a *attempt) (done bool, err error) {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.view.Load() != a.view {
		return false, nil
	}
	p.keepReports(a)
	clear(a.overloaded)
	if p.core.overload.Load().Enabled() {
		if err := p.dropOverloaded(a, now); err != nil {
			return false, err
		}
	}
	p.dropFull(a, now)
	a.keepToTarget()
	p.loadsOf(a, now)
	p.noteUses(a)
	return true, nil
}

// loadsOf copies load and version of every candidate, and what they hold of the
// prompt by their bookings. mu must be held.
func (p *Partition) loadsOf(a *attempt, now time.Time) {
	n := len(a.rows)
	a.loads = slices.Grow(a.loads[:0], n)[:n]
	a.versions = slices.Grow(a.versions[:0], n)[:n]
	for i, row := range a.rows {
		a.loads[i], a.versions[i] = p.tracker.Load(a.view.rows[row].slot, now)
	}
	slots := p.tracker.Len()
	a.active = slices.Grow(a.active[:0], slots)[:slots]
	clear(a.active)
	p.tracker.Active(a.sequences, a.active)
}

// dropOverloaded takes the candidates out that are over the busy limit, but the
// one that the session is bound to: its request has waited for that. mu must be
// held.
func (p *Partition) dropOverloaded(a *attempt, now time.Time) error {
	a.dropRows(func(r *viewRow) bool {
		if !p.overloaded(r, now) {
			return false
		}
		if !a.exclusive || r.worker != a.bound.Worker {
			return true
		}
		if a.overloaded == nil {
			a.overloaded = map[load.Slot]bool{}
		}
		a.overloaded[r.slot] = true
		return false
	})
	switch {
	case len(a.rows) > 0:
		return nil
	case a.req.Pin != nil:
		return &Error{Code: CodePinOverloaded, Message: fmt.Sprintf("pinned worker %s is overloaded", a.req.Pin), Field: "pin", RetryAfter: retryAfter}
	}
	return unavailable(CodeOverloaded, "every worker of model %q is overloaded", p.key.Model)
}

// dropFull takes the candidates out that take no more requests of the class, as
// long as others do. mu must be held.
func (p *Partition) dropFull(a *attempt, now time.Time) {
	if a.req.Kind == Advisory || a.exclusive {
		return
	}
	busy := &p.class(a).Busy
	if busy.ActiveRequests == 0 {
		return
	}
	full := func(r *viewRow) bool {
		l, _ := p.tracker.Load(r.slot, now)
		return busy.Full(l.ActiveRequests)
	}
	if slices.ContainsFunc(a.rows, func(row int32) bool { return !full(&a.view.rows[row]) }) {
		a.dropRows(full)
	}
}

// dropRows takes rows out of what was looked up.
func (a *attempt) dropRows(drop func(*viewRow) bool) {
	kept := 0
	for i, row := range a.rows {
		if drop(&a.view.rows[row]) {
			continue
		}
		a.rows[kept], a.workers[kept], a.overlaps[kept] = row, a.workers[i], a.overlaps[i]
		if i < len(a.reported) {
			a.reports[kept], a.reported[kept] = a.reports[i], a.reported[i]
		}
		kept++
	}
	if kept == len(a.rows) {
		return
	}
	a.rows, a.workers, a.overlaps = a.rows[:kept], a.workers[:kept], a.overlaps[:kept]
	a.reports, a.reported = a.reports[:min(kept, len(a.reports))], a.reported[:min(kept, len(a.reported))]
	a.stale = true // the next snapshot has to look at them again
}

// matchIndex asks the index what each candidate holds of the prompt.
func (a *attempt) matchIndex(p *Partition) {
	n := len(a.rows)
	a.workers = slices.Grow(a.workers[:0], n)[:n]
	for i, row := range a.rows {
		a.workers[i] = a.view.rows[row].worker
	}
	a.overlaps = slices.Grow(a.overlaps[:0], n)[:n]
	a.find(p, a.workers, a.overlaps)
}

// find asks the index what each of some workers holds of the prompt.
func (a *attempt) find(p *Partition, workers []fleet.Worker, out []kvcache.Overlap) {
	if len(a.blocks) == 0 {
		clear(out)
		return
	}
	p.index.Find(a.blocks, workers, out)
	if len(a.text) > 0 {
		a.byText = slices.Grow(a.byText[:0], len(out))[:len(out)]
		p.index.Find(a.text, workers, a.byText)
		for i, o := range a.byText {
			if t := out[i]; o.Device+o.Host+o.Disk > t.Device+t.Host+t.Disk {
				out[i] = o
			}
		}
	}
	n := uint32(len(a.blocks))
	for i := range out {
		o := bounded(out[i], n)
		if len(a.shared) > 0 {
			o.Shared = min(kvcache.Beyond(a.shared, o.Device+o.Host+o.Disk), n-o.Device-o.Host-o.Disk)
		}
		out[i] = o
	}
}

// bounded makes sure that no tier claims more blocks than the prompt has.
func bounded(o kvcache.Overlap, n uint32) kvcache.Overlap {
	o.Device = min(o.Device, n)
	o.Host = min(o.Host, n-o.Device)
	o.Disk = min(o.Disk, n-o.Device-o.Host)
	o.Shared = min(o.Shared, n-o.Device-o.Host-o.Disk)
	return o
}

// seedFor is the seed of the n-th request of the partition when it brings none.
func (p *Partition) seedFor(n uint64) uint64 {
	seed := p.core.seed.Load()
	if seed == nil {
		return rand.Uint64()
	}
	return policy.SplitMix64(*seed ^ policy.SplitMix64(p.salt+n))
}
