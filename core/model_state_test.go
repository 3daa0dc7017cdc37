package core_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/fleet"
)

// What a core should hold, in maps, and worked out the plainest way.

// modelWorker is a registered worker.
type modelWorker struct {
	name, part   string
	ranks        int
	state        core.Lifecycle
	adapter      bool // it has "ad" loaded
	label        int
	generation   uint64
	inhibited    time.Time // until then
	inhibition   time.Duration
	refusedUntil time.Time
}

// modelBinding is a session's binding.
type modelBinding struct {
	rank       string
	generation uint64
	touched    time.Time // the last end of a lease
	born       int       // the step
	// loose: nobody can tell who of those that wait has a lease on it.
	loose bool
	// lost: somebody of the session has met it since the last quiet point and
	// could not use it.
	lost bool
}

// heldBooking is a live reservation.
type heldBooking struct {
	id, part, worker, rank, adapter string
	withSession                     bool
	lease                           *modelBinding // nil for none
	prompt                          []string      // the names of its full blocks
	prefill, own, weight            int64         // weight in millionths of a block
	expires                         time.Time     // zero: never
	reservation                     interface{ Released() bool }
}

// modelChoice is what a query under an id has chosen.
type modelChoice struct {
	part, worker, rank, session, adapter string
	excluded                             string
	generation                           uint64
	demand                               modelDemand
	expires                              time.Time
}

type modelDemand struct {
	prompt       []string
	prefill, own int64
}

type modelBlock struct {
	holders int
	weight  int64
}

const wholeBlock = 1_000_000

// demanded is what a prompt puts on a rank that has cached blocks of it.
func demanded(a *modelAsk, cached int) modelDemand {
	d := modelDemand{prefill: int64(16*(len(a.letters)-cached) + a.tail), own: int64((a.tail + 15) / 16)}
	for i := range a.letters {
		d.prompt = append(d.prompt, a.adapter+":"+a.letters[:i+1])
	}
	return d
}

func (a *modelAsk) tokens() int { return 16*len(a.letters) + a.tail }

func rankName(worker string, rank uint32) string { return fmt.Sprintf("%s/%d", worker, rank) }

func workerOf(rank string) string { return rank[:strings.IndexByte(rank, '/')] }

// book puts a booking on its rank.
func (m *wholeModel) book(b *heldBooking, d modelDemand) {
	b.prompt, b.prefill, b.own, b.weight = d.prompt, d.prefill, d.own, wholeBlock*d.own
	m.held[b.id] = b
	blocks := m.blocks[b.rank]
	if blocks == nil {
		blocks = map[string]*modelBlock{}
		m.blocks[b.rank] = blocks
	}
	for _, p := range b.prompt {
		if blocks[p] == nil {
			blocks[p] = &modelBlock{}
		}
		blocks[p].holders++
		blocks[p].weight = wholeBlock // what is shared counts whole
	}
}

// drop ends a booking, and its lease with it.
func (m *wholeModel) drop(b *heldBooking, now time.Time) {
	delete(m.held, b.id)
	blocks := m.blocks[b.rank]
	for _, p := range b.prompt {
		if blocks[p].holders--; blocks[p].holders == 0 {
			delete(blocks, p)
		}
	}
	if b.lease != nil {
		b.lease.touched = now
	}
}

// decay gives a booking's own blocks, and those that nobody shares, a weight.
func (m *wholeModel) decay(b *heldBooking, fraction float64) {
	weight := int64(math.Round(fraction * wholeBlock))
	b.weight = weight * b.own
	for _, p := range slices.Backward(b.prompt) {
		block := m.blocks[b.rank][p]
		if block.holders > 1 {
			return
		}
		block.weight = weight
	}
}

// loads counts all anew.
func (m *wholeModel) wantLoads() map[string]core.LoadView {
	out, weights := map[string]core.LoadView{}, map[string]int64{}
	for _, w := range m.workers {
		for r := range w.ranks {
			out[rankName(w.name, uint32(r))] = core.LoadView{}
		}
	}
	for _, b := range m.held {
		l := out[b.rank]
		l.ActiveRequests++
		l.PrefillTokens += b.prefill
		out[b.rank], weights[b.rank] = l, weights[b.rank]+b.weight
	}
	for rank, l := range out {
		for _, b := range m.blocks[rank] {
			weights[rank] += b.weight
		}
		l.DecodeBlocks = float64(weights[rank]) / wholeBlock
		out[rank] = l
	}
	return out
}

// dropRanks ends what is on the ranks of a worker from one on.
func (m *wholeModel) dropRanks(w *modelWorker, from int) {
	gone := func(rank string) bool {
		for r := from; r < w.ranks; r++ {
			if rank == rankName(w.name, uint32(r)) {
				return true
			}
		}
		return false
	}
	for _, b := range m.held {
		if gone(b.rank) {
			m.met["withdrawn"]++
			m.drop(b, time.Now())
		}
	}
	for id, e := range m.parts[w.part] {
		if gone(e.rank) {
			delete(m.parts[w.part], id)
		}
	}
}

func (m *wholeModel) put(name, part string, ranks int, change func(*modelWorker)) error {
	w := m.workers[name]
	if w != nil && w.part != part {
		m.dropRanks(w, 0)
		state := w.state
		w = &modelWorker{name: name, state: state}
	}
	if w == nil {
		w = &modelWorker{name: name, state: core.Ready}
	}
	if w.generation == 0 {
		m.generations++
		w.generation = m.generations
	}
	m.dropRanks(w, ranks)
	w.part, w.ranks = part, ranks
	change(w)
	m.workers[name] = w
	if m.parts[part] == nil {
		m.parts[part] = map[string]*modelBinding{}
	}
	rec := record(name, part)
	rec.DPSize, rec.Labels = ranks, map[string]string{"l": fmt.Sprint(w.label)}
	if w.adapter {
		rec.Adapters = []fleet.Adapter{{Name: "ad"}}
	}
	if err := m.Prepare(m.ctx, model(part), 16); err != nil {
		return err
	}
	return m.Commit(core.Change{Upserts: []core.Member{{Record: rec, Lifecycle: w.state}}})
}

func (m *wholeModel) remove(name string) error {
	if w := m.workers[name]; w != nil {
		m.dropRanks(w, 0)
		delete(m.workers, name)
	}
	return m.Commit(core.Change{Removals: []fleet.WorkerID{fleet.IDFromName(name)}})
}

func (w *modelWorker) inhibit(now time.Time) {
	if !now.Before(w.inhibited) {
		w.inhibition = min(max(2*w.inhibition, time.Second), 30*time.Second)
		w.inhibited = now.Add(w.inhibition)
	}
}

// out tells whether a worker is passed over as long as there are others.
func (w *modelWorker) out(now time.Time) bool { return w.unreachable(now) || w.refuses(now) }

func (w *modelWorker) unreachable(now time.Time) bool { return now.Before(w.inhibited) }

func (w *modelWorker) refuses(now time.Time) bool { return now.Before(w.refusedUntil) }

// eligible are the ranks that may serve a request, or why there is none.
func (m *wholeModel) eligible(f *flight) (rows []string, code core.Code) {
	a, all, ejected, excluded := &f.ask, 0, false, false
	if a.pin != "" {
		w := m.workers[a.pin]
		switch {
		case len(m.in(f.part)) == 0:
			return nil, core.CodeNoWorkers
		case a.allow != "" && a.allow != a.pin:
			return nil, core.CodePinNotAllowed
		case w == nil || w.part != f.part, a.rank >= w.ranks:
			return nil, core.CodePinUnknown
		}
	}
	for _, w := range m.in(f.part) {
		for r := range w.ranks {
			all++
			switch {
			case a.allow != "" && a.allow != w.name, a.pin != "" && (a.pin != w.name || a.rank >= 0 && a.rank != r), a.adapter != "" && !w.adapter:
			case w.state != core.Ready:
				ejected = ejected || w.state == core.Ejected
			case a.exclude == w.name:
				excluded = true
			default:
				rows = append(rows, rankName(w.name, uint32(r)))
			}
		}
	}
	switch {
	case len(rows) > 0:
		return rows, ""
	case all > 0 && excluded:
		return nil, core.CodeNoCandidates
	case ejected:
		return nil, core.CodeWorkersEjected
	}
	return nil, core.CodeNoWorkers
}

// in are the workers of a partition.
func (m *wholeModel) in(part string) (out []*modelWorker) {
	for _, name := range []string{"w1", "w2", "w3"} {
		if w := m.workers[name]; w != nil && w.part == part {
			out = append(out, w)
		}
	}
	return out
}

// reachable are the rows that are not passed over; all where all are, and where
// the worker is pinned.
func (m *wholeModel) reachable(f *flight, rows []string) []string {
	if f.ask.pin != "" {
		return rows
	}
	var out []string
	for _, rank := range rows {
		if !m.workers[workerOf(rank)].out(time.Now()) {
			out = append(out, rank)
		}
	}
	if len(out) == 0 {
		return rows
	}
	return out
}

// busy tells whether a rank takes no request of a class.
func (m *wholeModel) busy(rank, class string) bool {
	if !m.kind.queued {
		return false
	}
	l := m.wantLoads()[rank]
	switch class {
	case "default":
		return l.ActiveRequests >= 2
	case "batch":
		return l.PrefillTokens > 40
	}
	return false
}

func (m *wholeModel) allBusy(f *flight, rows []string) bool {
	return !slices.ContainsFunc(m.reachable(f, rows), func(rank string) bool { return !m.busy(rank, f.ask.class) })
}

// usable tells whether a session's request can go to what it is bound to: its
// worker is there, ready and, unless nobody else is, within reach.
func (m *wholeModel) usable(e *modelBinding, f *flight) bool {
	w := m.workers[workerOf(e.rank)]
	if w == nil || w.generation != e.generation || w.state != core.Ready || f.ask.exclude == w.name {
		return false
	}
	if !w.unreachable(time.Now()) {
		return true
	}
	rows, _ := m.eligible(f)
	return slices.Contains(m.reachable(f, rows), e.rank)
}

// serves tells whether the worker of a binding has what a request asks for.
func (m *wholeModel) serves(e *modelBinding, f *flight) bool {
	w := m.workers[workerOf(e.rank)]
	return w != nil && (f.ask.adapter == "" || w.adapter)
}

// cached is how many blocks of a prompt a rank holds.
func (m *wholeModel) cached(rank string, a *modelAsk) int {
	n := 0
	for a.adapter == "" && n < len(a.letters) && m.stored[rank+" "+a.letters[:n+1]] {
		n++
	}
	return n
}
